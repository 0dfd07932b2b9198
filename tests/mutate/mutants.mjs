// Finds where a C source may be changed by one small mistake: relational flips, logical flips, plus and minus, constants,
// deleted statements, removed checks, swapped arguments. A mutant is {file, line, kind, begin, end, text, was,
// around}: the source's characters from begin to end, which were `was`, become `text`; around is the line it stands in.

// Tokens outside comments and preprocessor lines: {text, begin, end, line, depth, round}. depth: of braces; round: of
// parentheses.
export function tokens(source) {
  const list = [];
  const pattern = /\/\*[^]*?\*\/|\/\/[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*|[A-Za-z_]\w*|\.?\d[\w.]*(?:(?<=[eEpP])[+-]\w+)?|->|\+\+|--|<<=|>>=|<<|>>|[<>=!+\-*/%&|^]=|&&|\|\||\.\.\.|\S/gm;
  let line = 1, at = 0, depth = 0, round = 0;
  for (const match of source.matchAll(pattern)) {
    const text = match[0];
    for (; at < match.index; at++) if (source[at] === '\n') line++;
    if (text.startsWith('/*') || text.startsWith('//') || /^\s*#/.test(text)) continue;
    if (text === '}') depth--;
    if (text === ')') round--;
    list.push({ text, begin: match.index, end: match.index + text.length, line, depth, round });
    if (text === '{') depth++;
    if (text === '(') round++;
  }
  return list;
}

const relational = { '<': '<=', '<=': '<', '>': '>=', '>=': '>', '==': '!=', '!=': '==' };
const logical = { '&&': '||', '||': '&&' };
const keywords = new Set(['if', 'for', 'while', 'switch', 'return', 'sizeof', 'do', 'else', 'case', 'goto', 'default', 'break', 'continue']);
const word = (token) => token && /^[A-Za-z_]/.test(token.text);
const operand = (token) => token && (/^[\w.)\]]/.test(token.text)) && !keywords.has(token.text);

// The index of the bracket that closes the one at `open`, or -1.
function closing(list, open) {
  const pairs = { '(': ')', '[': ']', '{': '}' };
  const stack = [];
  for (let i = open; i < list.length; i++) {
    if (pairs[list[i].text]) stack.push(pairs[list[i].text]);
    else if (list[i].text === stack.at(-1)) { stack.pop(); if (!stack.length) return i; }
  }
  return -1;
}

// Which tokens stand inside a function's body rather than in a table or a type: a map from index to true.
function bodies(list) {
  const inside = new Array(list.length).fill(false);
  for (let i = 1; i < list.length; i++)
    if (list[i].text === '{' && list[i].depth === 0 && list[i - 1].text === ')') {
      const end = closing(list, i);
      if (end < 0) break;
      inside.fill(true, i + 1, end);
      i = end;
    }
  return inside;
}

// The line or lines that a mutant stands in, which tell it from others of its kind.
function around(source, begin, end) {
  const first = source.lastIndexOf('\n', begin) + 1, last = source.indexOf('\n', end);
  return source.slice(first, last < 0 ? source.length : last).trim().replace(/\s+/g, ' ');
}

export function mutants(file, source) {
  const list = tokens(source), inside = bodies(list), found = [];
  const add = (kind, first, last, text) => found.push({
    file, line: list[first].line, kind, begin: list[first].begin, end: list[last].end, text,
    was: source.slice(list[first].begin, list[last].end), around: around(source, list[first].begin, list[last].end),
  });
  for (let i = 1; i + 1 < list.length; i++) {
    if (!inside[i]) continue;
    const token = list[i], before = list[i - 1], after = list[i + 1];
    if (relational[token.text] && operand(before)) add('relational', i, i, relational[token.text]);
    else if (logical[token.text]) add('logical', i, i, logical[token.text]);
    else if ((token.text === '+' || token.text === '-') && operand(before) && before.text !== ')') add('arithmetic', i, i, token.text === '+' ? '-' : '+');
    else if (/^\d+[uUlL]*$/.test(token.text) && before.text !== 'case' && before.text !== '[') {
      const number = parseInt(token.text, 10), suffix = token.text.replace(/^\d+/, '');
      add('constant', i, i, `${number === 1 ? 0 : number + 1}${suffix}`);
    } else if (token.text === 'if' && after.text === '(') {
      const end = closing(list, i + 1);
      if (end > 0) add('check removed', i + 1, end, '(0)');
    } else if (word(token) && !keywords.has(token.text) && !token.round && [';', '{', '}'].includes(before.text)) {
      // a statement that is no declaration: its second token is no word, nor a star before a word that is assigned or ended
      const declares = word(after) || (after.text === '*' && (word(list[i + 2]) || list[i + 2]?.text === '*'));
      let end = i;
      while (end < list.length && list[end].text !== ';' && list[end].text !== '{') end = '(['.includes(list[end].text) ? closing(list, end) + 1 : end + 1;
      if (!declares && after.text !== ':' && list[end]?.text === ';') add('statement deleted', i, end, ';');
    }
    if (word(token) && !keywords.has(token.text) && !/^mem_c?alloc$/.test(token.text) && after.text === '(') {
      const end = closing(list, i + 1), commas = [];
      let level = 0;
      for (let k = i + 2; k < end; k++) {
        if ('([{'.includes(list[k].text)) level++;
        if (')]}'.includes(list[k].text)) level--;
        if (!level && list[k].text === ',') commas.push(k);
      }
      const stops = [i + 1, ...commas, end];
      for (let k = 0; k + 2 < stops.length; k++) {
        const a = source.slice(list[stops[k] + 1].begin, list[stops[k + 1] - 1].end);
        const b = source.slice(list[stops[k + 1] + 1].begin, list[stops[k + 2] - 1].end);
        if (a !== b && !/^["']/.test(a + b)) add('arguments swapped', stops[k] + 1, stops[k + 2] - 1, `${b}, ${a}`);
      }
    }
  }
  return found;
}
