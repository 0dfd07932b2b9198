#!/usr/bin/env node
// Restores one picture by a server: node examples/restore.mjs PHOTO RESULT [OPTION=VALUE]...
// The server is that of RESTORED_URL, and RESTORED_TOKEN is sent if it is set. With Accept: multipart/mixed or
// application/json the answer would hold the report as well, see docs/api.md.
import { readFile, writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const { RESTORED_URL = 'http://127.0.0.1:8080', RESTORED_TOKEN } = process.env;

export async function restore(picture, name, options = {}) {
  const body = new FormData();
  for (const [option, value] of Object.entries(options)) body.append(option, value);
  body.append('image', new Blob([picture]), name);
  for (let attempt = 0; ; attempt++) {
    const answer = await fetch(`${RESTORED_URL}/v1/restore`, { method: 'POST', body, headers: RESTORED_TOKEN ? { authorization: `Bearer ${RESTORED_TOKEN}` } : {} });
    if (answer.ok) return Buffer.from(await answer.arrayBuffer());
    if ((answer.status === 429 || answer.status === 503) && attempt < 4) await sleep(1000 * Number(answer.headers.get('retry-after') ?? 1)); // busy
    else throw new Error((await answer.json().catch(() => null))?.detail ?? `the server answered ${answer.status}`);
  }
}

const [, program, photo, result, ...words] = process.argv;
if (!result) {
  console.error(`usage: node ${program} PHOTO RESULT [OPTION=VALUE]...`);
  process.exit(2);
}
const bare = words.find((word) => !word.includes('='));
if (bare !== undefined) {
  console.error(`${bare}: an option is written OPTION=VALUE`);
  process.exit(2);
}
try {
  const options = Object.fromEntries(words.map((word) => [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)]));
  await writeFile(result, await restore(await readFile(photo), basename(photo), options));
} catch (error) {
  console.error(error.cause ? `${RESTORED_URL}: ${error.cause.message || error.cause.code}` : error.message); // fetch says why behind its error
  process.exit(1);
}
