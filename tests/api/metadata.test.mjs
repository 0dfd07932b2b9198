// EXIF, XMP, IPTC and the resolution of a picture in its result, as exiftool reads them.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fixture, plain, post, start } from './client.mjs';

let server;
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'restored-metadata-'));
const at = (name) => path.join(folder, name);
const read = (name) => JSON.parse(execFileSync('exiftool', ['-json', '-G1', '-n', at(name)]))[0];

before(async () => {
  server = await start();
  fs.writeFileSync(at('t.jpg'), fixture('gray.jpg'));
  execFileSync('convert', [path.join(folder, 't.jpg'), '-resize', '90x60!', '-density', '300', '-units', 'PixelsPerInch', 'in.jpg'], { cwd: folder });
  execFileSync('exiftool', ['-q', '-overwrite_original', '-Make=Cam', '-Artist=Ann', '-Software=other', '-ExposureTime=1/50', '-ISO=200', '-GPSLatitude=47.5', '-GPSLatitudeRef=N',
    '-ExifImageWidth=90', '-ExifImageHeight=60', '-ThumbnailImage<=t.jpg', '-IPTC:Keywords=one', '-IPTC:City=Bern', '-XMP-dc:Title=hello', '-XMP-exif:GPSLatitude=47.5',
    '-XMP-tiff:Orientation#=6', '-XMP-tiff:ImageWidth=90', '-XMP-tiff:XResolution=300', '-Orientation#=6', 'in.jpg'], { cwd: folder });
});
after(async () => { await server.stop(); fs.rmSync(folder, { recursive: true }); });

async function restore(ext, fields = {}, input = 'in.jpg') {
  const answer = await post(server, '/v1/restore', { picture: fs.readFileSync(at(input)), fields: { ...plain, ext, ...fields } });
  assert.equal(answer.status, 200, JSON.stringify(answer.json));
  fs.writeFileSync(at(`out.${ext}`), answer.bytes);
  return read(`out.${ext}`);
}

describe('kept', () => {
  for (const ext of ['jpg', 'png', 'tiff', 'webp', 'jxl'])
    test(`in ${ext}: camera, place, texts; with the result's size, resolution, orientation and maker, without the thumbnail`, async () => {
      const tags = await restore(ext);
      assert.deepEqual(
        Object.fromEntries(['IFD0:Make', 'IFD0:Artist', 'ExifIFD:ExposureTime', 'ExifIFD:ISO', 'Composite:GPSLatitude', 'XMP-dc:Title', 'IFD0:XResolution', 'IFD0:YResolution', 'IFD0:ResolutionUnit',
          'IFD0:Orientation', 'ExifIFD:ExifImageWidth', 'ExifIFD:ExifImageHeight'].map((tag) => [tag, tags[tag]])),
        { 'IFD0:Make': 'Cam', 'IFD0:Artist': 'Ann', 'ExifIFD:ExposureTime': 0.02, 'ExifIFD:ISO': 200, 'Composite:GPSLatitude': 47.5, 'XMP-dc:Title': 'hello', 'IFD0:XResolution': 600,
          'IFD0:YResolution': 600, 'IFD0:ResolutionUnit': 2, 'IFD0:Orientation': 1, 'ExifIFD:ExifImageWidth': 120, 'ExifIFD:ExifImageHeight': 180 });
      assert.match(tags['IFD0:Software'], /^restored \d/);
      assert.deepEqual(Object.keys(tags).filter((tag) => /Thumbnail|^IFD1/.test(tag)), []);
      const texts = execFileSync('exiftool', ['-xmp', '-b', at(`out.${ext}`)], { encoding: 'utf8' });
      assert.match(texts, /<tiff:Orientation>1</);
      assert.match(texts, /<tiff:ImageWidth>120</);
      assert.match(texts, /<tiff:XResolution>6000000\/10000</);
      assert.doesNotMatch(texts, />90</);
      if (ext === 'png') assert.equal(tags['PNG-pHYs:PixelsPerUnitX'], Math.round(600 / 0.0254));
      const iptc = Object.entries(tags).filter(([tag]) => /^IPTC\d?:(City|Keywords)/.test(tag)).map(([, value]) => value);
      assert.deepEqual(iptc.sort(), ['jpg', 'png', 'tiff'].includes(ext) ? ['Bern', 'one'] : []);
      if (ext === 'tiff') { // in its own tag (33723), not in Photoshop's resources (34377)
        assert.deepEqual(execFileSync('tiffdump', [at('out.tiff')], { encoding: 'utf8' }).match(/^(33723|34377)/gm), ['33723']);
      }
      if (ext === 'tiff' || ext === 'png') { // and from there once more
        fs.copyFileSync(at(`out.${ext}`), at('again'));
        const again = await restore('jpg', {}, 'again');
        assert.equal(again['ExifTool:Warning'], undefined);
        assert.deepEqual([again['ExifIFD:ISO'], again['IPTC:City'], again['IFD0:XResolution'], again['Composite:GPSLatitude']], [200, 'Bern', 1200, 47.5]);
      }
    });

  test('a picture with a resolution alone keeps the size of its print', async () => {
    execFileSync('convert', ['in.jpg', '-strip', '-density', '300', '-units', 'PixelsPerInch', 'bare.jpg'], { cwd: folder });
    assert.equal((await restore('jpg', {}, 'bare.jpg'))['JFIF:XResolution'], 600);
    for (const ext of ['webp', 'avif', 'jxl']) // these have no other place than EXIF
      for (const metadata of ['keep', 'strip']) {
        const seen = await restore(ext, { metadata }, 'bare.jpg');
        assert.deepEqual([seen['IFD0:XResolution'], seen['IFD0:YResolution'], seen['IFD0:ResolutionUnit'], /^restored /.test(seen['IFD0:Software'])], [600, 600, 2, metadata === 'keep'], `${ext} ${metadata}`);
      }
  });
});

test('a picture without metadata gets who made its result, but not with strip or compat', async () => {
  execFileSync('convert', ['-size', '30x20', 'gradient:red-blue', 'none.jpg'], { cwd: folder });
  for (const ext of ['jpg', 'png', 'tiff', 'webp', 'avif', 'jxl'])
    for (const fields of [{}, { metadata: 'strip-gps' }, { metadata: 'strip' }, { compat: 'true' }]) {
      const software = (await restore(ext, fields, 'none.jpg'))['IFD0:Software'];
      if (fields.metadata === 'strip' || fields.compat) assert.equal(software, undefined, ext);
      else assert.match(String(software), /^restored \d/, ext);
    }
});

describe('taken out', () => {
  for (const ext of ['jpg', 'png', 'tiff'])
    test(`metadata=strip and strip-gps in ${ext}`, async () => {
      const none = await restore(ext, { metadata: 'strip' });
      assert.deepEqual(Object.keys(none).filter((tag) => /^(XMP|IPTC|ExifIFD|GPS)|Make|Artist/.test(tag)), []);
      const some = await restore(ext, { metadata: 'strip-gps' });
      assert.equal(some['IFD0:Make'], 'Cam');
      assert.equal(some['XMP-dc:Title'], 'hello');
      assert.deepEqual(Object.keys(some).filter((tag) => /GPS/.test(tag)), []);
      assert.doesNotMatch(fs.readFileSync(at(`out.${ext}`)).toString('latin1'), /GPS/);
    });
});

test('a gain map is no longer announced, and a note says so', async () => {
  const item = (meaning) => `<rdf:li rdf:parseType="Resource"><Container:Item Item:Semantic="${meaning}" Item:Mime="image/jpeg"/></rdf:li>`;
  fs.writeFileSync(at('gain.xmp'), `<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about=""
    xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:hdrgm="http://ns.adobe.com/hdr-gain-map/1.0/" xmlns:Container="http://ns.google.com/photos/1.0/container/"
    xmlns:Item="http://ns.google.com/photos/1.0/container/item/" hdrgm:Version="1.0" dc:source="here"><hdrgm:GainMapMax><rdf:Seq><rdf:li>1</rdf:li></rdf:Seq></hdrgm:GainMapMax>
    <Container:Directory><rdf:Seq>${item('Primary')}${item('GainMap')}</rdf:Seq></Container:Directory></rdf:Description></rdf:RDF></x:xmpmeta>`);
  execFileSync('convert', ['in.jpg', '-strip', 'hdr.jpg'], { cwd: folder });
  execFileSync('exiftool', ['-q', '-overwrite_original', '-XMP<=gain.xmp', 'hdr.jpg'], { cwd: folder });
  assert.match(fs.readFileSync(at('hdr.jpg')).toString('latin1'), /GainMapMax/);
  const tags = await restore('jpg', {}, 'hdr.jpg'), bytes = fs.readFileSync(at('out.jpg')).toString('latin1');
  assert.equal(tags['XMP-dc:Source'], 'here');
  assert.doesNotMatch(bytes, /hdrgm:|Container:Directory|GainMap"/);
  const answer = await post(server, '/v1/restore', { picture: fs.readFileSync(at('hdr.jpg')), fields: plain, headers: { Accept: 'application/json' } });
  assert.ok(answer.json.notes.some((note) => /HDR gain map/.test(note)), String(answer.json.notes));
  const other = await post(server, '/v1/restore', { picture: fs.readFileSync(at('in.jpg')), fields: plain, headers: { Accept: 'application/json' } });
  assert.ok(!other.json.notes.some((note) => /HDR gain map/.test(note)));
});
