// What is chosen for one picture alone: which faces, how strongly, and its mask; and the fields that say so to the server.

// own: {left: [ids of faces left as they are], weights: {id: '0.5'}, faces: {list, width, height} as found, mask: Blob,
// repainted: the mask is another than that of the result, adds: what the server finds is repaired besides, off: [kinds of damage that are not repaired], counts: of each kind,
// kept: what was found and kept, where the server repairs it without being sent it: {blob, repair, damage_detector: the options then}}
export const own = (item) => Object.assign(item.own, { left: item.own.left ?? [], weights: item.own.weights ?? {} });

// Its faces, as they were found before or by its last restoration: {list, width, height} in pixels of the picture, or null.
export function facesOf(item) {
  const { report } = item;
  return report?.faces && report.input ? { list: report.faces, width: report.input.width, height: report.input.height } : item.own.faces ?? null;
}

// Which kinds of damage are repaired, where some are not.
export const kindsOf = (off) => (off?.length ? { repair_kinds: ['thin', 'crack', 'dust', 'stain'].filter((kind) => !off.includes(kind)).join() || 'none' } : {});

// How much each value of repair repairs.
const amounts = { false: 0, true: 2 }, amount = (repair) => amounts[repair] ?? 1;

// The mask that goes with a picture; undefined: none. What was kept is one as soon as the server would no longer repair it by itself.
export function maskOf({ own: { mask, kept } }, { compat, repair, damage_detector: detector }) {
  const lost = kept && compat !== 'true' && (amount(repair) < amount(kept.repair) || detector !== kept.damage_detector);
  return mask ?? (lost ? kept.blob : undefined);
}

// The fields of a picture: common ones, and what is its own.
export function fieldsOf(item, common) {
  const { left, weights } = own(item), fields = { ...common };
  const ids = facesOf(item)?.list.map(({ id }) => id) ?? [];
  if (left.length) fields.faces = ids.filter((id) => !left.includes(id)).join(',') || 'none';
  const single = Object.entries(weights).filter(([id]) => !left.includes(Number(id))).map(([id, weight]) => `${id}:${weight}`);
  if (single.length) fields.weight = [common.weight, ...single].filter(Boolean).join(',');
  if (maskOf(item, common)) Object.assign(fields, { mask_mode: item.own.mask && item.own.adds ? 'add' : 'replace' });
  Object.assign(fields, kindsOf(item.own.off));
  if (fields.repair_kinds && fields.repair === 'false') fields.repair = 'true'; // as it was shown
  return fields;
}

// Whether the result of a picture was made with other settings than those that would be sent now.
export function isOutdated(item, common) {
  const text = (fields) => JSON.stringify(Object.entries(fields).sort());
  return item.state === 'done' && (!!item.own.repainted || text(item.sent) !== text({ ...fieldsOf(item, common), ...item.extra }));
}
