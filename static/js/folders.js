// The files of a drop, those in folders too.

const files = (entry) => new Promise((done) => entry.file((file) => done([file]), () => done([])));

// readEntries gives some at a time, none at the end.
async function children(folder) {
  const reader = folder.createReader(), all = [];
  for (;;) {
    const some = await new Promise((done) => reader.readEntries(done, () => done([])));
    if (!some.length) break;
    all.push(...some);
  }
  return all.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
}

const isHidden = (entry) => entry.name.startsWith('.');

async function walk(entry) {
  if (entry.isFile) return files(entry);
  const found = [];
  for (const child of await children(entry)) if (!isHidden(child)) found.push(...await walk(child));
  return found;
}

// {files, folder: whether there was one}. Entries must be asked for before the drop's event is over.
export async function dropped(data) {
  const entries = [...data?.items ?? []].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.some((entry) => entry.isDirectory)) return { files: [...data?.files ?? []], folder: false };
  const found = [];
  for (const entry of entries) found.push(...await walk(entry));
  return { files: found, folder: true };
}
