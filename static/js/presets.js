// Three ways to begin with, above the single options: each sets some of them, and is chosen as long as they stay like that.
import { $, element } from './dom.js';
import { mark, t } from './lang.js';
import { onChange } from './state.js';

// '' is the server's default.
const presets = {
  gentle: [mark('Gentle'), 'Little is changed: faces at half strength, the rest only enlarged.', { weight: '0.5', bg_upsampler: 'none', version: '', repair: 'false', tone: '' }],
  balanced: [mark('Balanced'), 'Clear faces, a sharper picture, damage repaired where it is sure.', { weight: '', bg_upsampler: '', version: '', repair: '', tone: '' }],
  strong: [mark('Strong'), 'All that can be done: faces in full, all damage that is found, faded prints corrected, more contrast.', { weight: '1', bg_upsampler: '', version: '', repair: 'true', tone: 'strong' }],
};

const control = (name) => $('form').elements.namedItem(name);
const isSet = (values) => Object.entries(values).every(([name, value]) => !control(name) || control(name).value === value);

function set(values) {
  for (const [name, value] of Object.entries(values)) {
    const input = control(name);
    if (input && [...input.options].some((option) => option.value === value)) input.value = value;
  }
  $('form').dispatchEvent(new Event('input'));
}

$('presets').replaceChildren(...Object.entries(presets).map(([name, [title, help, values]]) => {
  const input = element('input', { type: 'radio', name: 'preset', value: name });
  input.addEventListener('change', () => set(values));
  return element('label', { title: t(help) }, input, element('span', { className: 'sample', ariaHidden: 'true' }), element('strong', { textContent: t(title) }));
}));

onChange(() => {
  const name = Object.keys(presets).find((one) => isSet(presets[one][2]));
  for (const input of $('presets').querySelectorAll('input')) input.checked = input.value === name;
  const text = name ? t(presets[name][1]) : t('Your own choice of the options below.');
  if ($('help_preset').textContent !== text) $('help_preset').textContent = text;
});
