// What the page calls the server's options, stages and models. Of an option that is not here it says what the server says.

export const common = ['upscale', 'version', 'bg_upsampler', 'weight', 'ext'];
// Not for a form: the page sends damaged itself when asked to, and shows one picture as the answer.
export const unlisted = ['async', 'batch', 'damaged', 'faces_out', 'mask_kinds', 'mask_mode', 'priority', 'repair_kinds'];

// name: [title, one line of explanation, names of values]
export const labels = {
  width: ['Width', 'Width of the result in pixels, in place of the size above. Alone, it keeps the proportions.'],
  height: ['Height', 'Height of the result in pixels, the same way.'],
  max_side: ['Longer side', 'The longer side of the result in pixels, in place of the size above.'],
  fit: ['Width and height together', 'What to do where the picture has other proportions.', { inside: 'Fit within both', cover: 'Fill both, cut off the rest', fill: 'Stretch to both' }],
  only_center_face: ['Only the face in the middle', 'The other faces are enlarged like the background.'],
  faces: ['Which faces', 'all, none, or numbers such as 0,2. They begin at 0: the face that is shown as 1 is number 0.'],
  min_face: ['Smallest face', 'Faces of fewer pixels are left alone; 0 takes all.'],
  max_face: ['Largest face', 'Faces of more pixels are left alone; 0 takes all.'],
  min_score: ['Certainty of faces', '0.5 to 1. A lower number finds more faces, and more that are none.'],
  auto_rotate: ['Lying pictures', 'Looks for faces from all sides, for a scan that lies on its side or head.', { off: 'Leave them lying', report: 'Only find the faces', apply: 'Turn them upright' }],
  aligned: ['The picture is one face', 'For a square picture of a single upright face. The result is that face alone.'],
  parse: ['Blending', 'How a restored face is blended into the picture.', { auto: 'Automatic', true: 'Along the outline of the face', false: 'With a soft square' }],
  detector: ['Face finder', 'The network that looks for faces.'],
  seed: ['Variation', 'Any number changes fine detail, such as hair. Leave it empty to get the same result every time.'],
  suffix: ['Added to the file name', 'For example “restored”: photo.jpg becomes photo_restored.jpg.'],
  w: ['Faithfulness (CodeFormer)', '0 to 1. With more, faces stay nearer to the picture; with less, the network imagines more.'],
  preserve_color: ['Keep the colours of faces', 'A restored face gets no colours that the picture has not: black-and-white stays so.'],
  profile: ['Colour profile', 'Keep the colours as the picture has them, or turn them into sRGB.', { keep: 'Keep', srgb: 'sRGB' }],
  alpha: ['Transparency', 'How the edges of transparent parts are enlarged.', { auto: 'Automatic', resize: 'Smoothly', network: 'By the upscaler' }],
  metadata: ['Camera data', 'What the camera wrote into the file: when, where and how.', { keep: 'Keep', strip: 'Leave out', 'strip-gps': 'Leave out the place' }],
  page: ['Page', 'Which picture, where a file has several pages or frames.'],
  quality: ['Quality', '1 to 100. A higher number looks better and makes a larger file.'],
  progressive: ['Progressive', 'A JPEG shows a coarse picture first while it loads.'],
  lossless: ['Without loss', 'For WebP and JPEG XL: the file is larger and keeps every pixel exactly.'],
  png_level: ['PNG compression', '0 to 9. A higher number makes a smaller file but takes longer. The picture is the same.'],
  tone: ['Faded print', 'Gives a faded print its contrast and colours back. Sepia stays sepia.', { off: 'Leave as it is', auto: 'Correct', strong: 'Correct, more contrast' }],
  repair: ['Repair', 'Scratches, cracks, dust and stains are filled.', { auto: 'Where it is sure', true: 'All that is found', false: 'Off' }],
  repair_strength: ['Strength of the repair', '0 to 1. With less, some of the damage shines through.'],
  damage_detector: ['Damage finder', 'The network that looks for damage.'],
  fill: ['Filler', 'The network that fills damage.'],
  device: ['Device', 'The graphics card or processor that does the work.'],
  precision: ['Precision', '16 bit is faster on most graphics cards; 32 bit is more exact.', { auto: 'Automatic', fp32: '32 bit', fp16: '16 bit' }],
  bg_tile: ['Tile size', 'Large pictures are done in tiles, 32 to 4096 pixels wide. Smaller tiles need less memory; 0 means no tiles.'],
  compat: ['Exactly like GFPGAN', 'Repeats the original program, flaws included. Only useful for comparisons.'],
};

export const groups = [
  ['Size of the result', ['width', 'height', 'max_side', 'fit']],
  ['Faces', ['only_center_face', 'faces', 'min_face', 'max_face', 'min_score', 'auto_rotate', 'aligned', 'parse', 'w', 'preserve_color', 'seed', 'detector']],
  ['Damage', ['tone', 'repair', 'repair_strength', 'damage_detector', 'fill']],
  ['File', ['suffix', 'page', 'quality', 'lossless', 'progressive', 'png_level', 'profile', 'alpha', 'metadata']],
  ['Speed and memory', ['device', 'precision', 'bg_tile']],
  ['Other', ['compat']],
];

export const stages = {
  queue: 'Waiting', decode: 'Reading the picture', repair: 'Repairing damage', detect: 'Finding faces', align: 'Straightening faces', restore: 'Restoring faces',
  parse: 'Outlining faces', background: 'Enlarging the background', paste: 'Putting faces back', encode: 'Writing the file',
};

// What the server calls a picture's models in its answer.
export const roles = { detector: 'Face finder', face: 'Face model', parser: 'Outline model', background: 'Background model', damage: 'Damage finder', fill: 'Filler' };
