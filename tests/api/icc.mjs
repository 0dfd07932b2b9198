// Small ICC profiles (version 2.4) made by their formulas, and what they say a colour is.
const s15 = (v) => { const b = Buffer.alloc(4); b.writeInt32BE(Math.round(v * 65536)); return b; };
const u16 = (v) => { const b = Buffer.alloc(2); b.writeUInt16BE(v); return b; };
const u32 = (v) => { const b = Buffer.alloc(4); b.writeUInt32BE(v); return b; };
const text = (s) => Buffer.from(s, 'latin1');
const D50 = [0.9642, 1, 0.8249];

const times = (m, v) => m.map((row) => row.reduce((sum, x, i) => sum + x * v[i], 0));
const product = (a, b) => a.map((row) => b[0].map((_, c) => row.reduce((sum, x, i) => sum + x * b[i][c], 0)));
function inverse([[a, b, c], [d, e, f], [g, h, i]]) {
  const det = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g);
  return [[e * i - f * h, c * h - b * i, b * f - c * e], [f * g - d * i, a * i - c * g, c * d - a * f], [d * h - e * g, b * g - a * h, a * e - b * d]].map((row) => row.map((x) => x / det));
}

function profile(space, connection, kind, tags) {
  const all = [['desc', Buffer.concat([text('desc\0\0\0\0'), u32(5), text('made\0'), Buffer.alloc(78)])], ['cprt', text('text\0\0\0\0none\0')],
    ['wtpt', Buffer.concat([text('XYZ \0\0\0\0'), ...D50.map(s15)])], ...tags].map(([name, data]) => [name, Buffer.concat([data, Buffer.alloc(-data.length & 3)])]);
  let at = 132 + 12 * all.length;
  const table = all.map(([name, data]) => { const row = Buffer.concat([text(name), u32(at), u32(data.length)]); at += data.length; return row; });
  const head = Buffer.concat([u32(at), Buffer.alloc(4), text('\x02\x40\0\0'), text(kind + space + connection), ...[2026, 1, 1, 0, 0, 0].map(u16), text('acsp'), Buffer.alloc(28), ...D50.map(s15)]);
  return Buffer.concat([head, Buffer.alloc(128 - head.length), u32(all.length), ...table, ...all.map(([, data]) => data)]);
}

const gamma = (g) => Buffer.concat([text('curv\0\0\0\0'), u32(1), u16(Math.round(g * 256))]);
const srgbCurve = Buffer.concat([text('para\0\0\0\0'), u16(3), u16(0), ...[2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045].map(s15)]);

const models = new Map(); // of the profiles that were made here: matrix and curve

// primaries and white as xy; curve: a gamma, or 'srgb'.
export function rgbProfile(primaries, curve, white = [0.3127, 0.329]) {
  const xyz = ([x, y]) => [x / y, 1, (1 - x - y) / y], columns = primaries.map(xyz);
  const m = [0, 1, 2].map((k) => columns.map((c) => c[k])), scale = times(inverse(m), xyz(white));
  const cone = [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]];
  const from = times(cone, xyz(white)), to = times(cone, D50);
  const adapt = product(inverse(cone), cone.map((row, i) => row.map((x) => (x * to[i]) / from[i])));
  const matrix = product(adapt, m.map((row) => row.map((x, i) => x * scale[i])));
  const trc = curve === 'srgb' ? srgbCurve : gamma(curve);
  const icc = profile('RGB ', 'XYZ ', 'mntr', ['r', 'g', 'b'].flatMap((c, i) => [[`${c}XYZ`, Buffer.concat([text('XYZ \0\0\0\0'), ...matrix.map((row) => s15(row[i]))])], [`${c}TRC`, trc]]));
  models.set(icc, { matrix, light: (v) => (curve === 'srgb' ? (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4) : v ** curve) });
  return icc;
}

export const toXyz = (icc, rgb) => { const { matrix, light } = models.get(icc); return times(matrix, rgb.map(light)); };

export const grayProfile = (g) => profile('GRAY', 'XYZ ', 'mntr', [['kTRC', gamma(g)]]);

// Inks that multiply, each a little unclean: a table of 9 steps of each, 8 bits of Lab. both: and a way back.
export function cmykProfile(both = false) {
  const ink = [[0.1, 0.55, 0.85], [0.75, 0.12, 0.4], [0.95, 0.85, 0.1], [0.08, 0.08, 0.08]]; // light that each lets through
  const matrix = [[0.4361, 0.3851, 0.1431], [0.2225, 0.7169, 0.0606], [0.0139, 0.0971, 0.7141]], steps = 9;
  const nodes = Array.from({ length: steps ** 4 }, (_, n) => {
    const part = (k) => (Math.floor(n / steps ** (3 - k)) % steps) / (steps - 1);
    const rgb = [0, 1, 2].map((c) => ink.reduce((light, one, k) => light * (1 - part(k) * (1 - one[c])), 1));
    const f = (t) => (t > 216 / 24389 ? Math.cbrt(t) : (24389 / 27 / 116) * t + 16 / 116), [x, y, z] = times(matrix, rgb).map((v, i) => f(v / D50[i]));
    return [Math.round((116 * y - 16) * 2.55), Math.round(500 * (x - y) + 128), Math.round(200 * (y - z) + 128)].map((v) => Math.min(255, Math.max(0, v)));
  });
  const line = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  const table = Buffer.concat([text('mft1\0\0\0\0'), Buffer.from([4, 3, steps, 0]), ...[1, 0, 0, 0, 1, 0, 0, 0, 1].map(s15), line, line, line, line, Buffer.from(nodes.flat()), line, line, line]);
  // Half of what all three lack is black's part; Newton's method finds the rest.
  const back = Array.from({ length: steps ** 3 }, (_, n) => {
    const [l, a, bb] = [2, 1, 0].map((k) => (Math.floor(n / steps ** k) % steps) / (steps - 1)), fy = (100 * l + 16) / 116;
    const xyz = [fy + (255 * a - 128) / 500, fy, fy - (255 * bb - 128) / 200].map((t, i) => D50[i] * (t > 6 / 29 ? t ** 3 : (t - 4 / 29) * 3 * (6 / 29) ** 2));
    const rgb = times(inverse(matrix), xyz).map((v) => Math.min(1, Math.max(0.003, v))), black = Math.min(1, (0.5 * (1 - Math.max(...rgb))) / 0.92);
    let part = [0.3, 0.3, 0.3];
    for (let turn = 0; turn < 20; turn++) {
      const rest = (k, c) => 1 - part[k] * (1 - ink[k][c]);
      const off = rgb.map((v, c) => part.reduce((sum, _v, k) => sum + Math.log(rest(k, c)), Math.log((1 - black * 0.92) / v)));
      const change = times(inverse([0, 1, 2].map((c) => [0, 1, 2].map((k) => -(1 - ink[k][c]) / rest(k, c)))), off);
      part = part.map((v, k) => Math.min(1, Math.max(-0.2, v - change[k])));
    }
    return [...part, black].map((v) => Math.round(255 * Math.min(1, Math.max(0, v))));
  });
  const other = Buffer.concat([text('mft1\0\0\0\0'), Buffer.from([3, 4, steps, 0]), ...[1, 0, 0, 0, 1, 0, 0, 0, 1].map(s15), line, line, line, Buffer.from(back.flat()), line, line, line, line]);
  return profile('CMYK', 'Lab ', 'prtr', [['A2B0', table], ...(both ? [['B2A0', other]] : [])]);
}
