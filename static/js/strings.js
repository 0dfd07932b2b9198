// The page's words in other languages, by the English text that stands in the code and in index.html. The columns are those
// of languages without English. A test tells what is missing.

export const languages = { en: 'English', de: 'Deutsch', es: 'Español', fr: 'Français', zh: '中文' };

export const table = {
};
