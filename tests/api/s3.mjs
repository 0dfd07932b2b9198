// An S3 store for tests: s3rver, a double from npm, behind a proxy of ours that can fail on demand.
import { createHash, createHmac } from 'node:crypto';
import http from 'node:http';
import { mkdtempSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root } from './server.mjs';

const hmac = (key, text) => createHmac('sha256', key).update(text).digest();
const escape = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);

// Whether a request is signed with this secret: signature version 4, as AWS's documentation has it ("Create a signed AWS API request").
// s3rver checks no signature of this version.
function isSigned({ method, url, headers }, secret) {
  const found = /^AWS4-HMAC-SHA256 Credential=[^/]+\/(\d{8})\/([^/]+)\/s3\/aws4_request, *SignedHeaders=([^,]+), *Signature=([0-9a-f]{64})$/.exec(headers.authorization ?? '');
  if (!found) return false;
  const [, day, region, names, signature] = found, { pathname, searchParams } = new URL(url, 'http://x');
  const query = [...searchParams].map(([name, value]) => `${escape(name)}=${escape(value)}`).sort().join('&');
  const signed = names.split(';').map((name) => `${name}:${headers[name]?.trim()}\n`).join('');
  const canonical = [method, pathname, query, signed, names, headers['x-amz-content-sha256']].join('\n');
  const text = ['AWS4-HMAC-SHA256', headers['x-amz-date'], `${day}/${region}/s3/aws4_request`, createHash('sha256').update(canonical).digest('hex')].join('\n');
  const key = [day, region, 's3', 'aws4_request'].reduce(hmac, `AWS4${secret}`);
  return ['host', 'x-amz-content-sha256', 'x-amz-date'].every((name) => names.split(';').includes(name)) && hmac(key, text).toString('hex') === signature;
}

// Resolves to {endpoint, port, env, bucket, seen, fault, hangUp(), stop()}; http://s3.localhost:PORT takes the host style. seen: what was asked, [{method, url, hash, sha256}], sha256 of the
// body as it came. fault, when set, is called for each request as fault(request, tries): 'refuse' answers 503, 'cut' breaks
// the answer off in its middle, 'stall' never answers, anything else lets it through. tries: how often this method and URL came.
export async function startS3(bucket = 'pictures') {
  const folder = mkdtempSync(join(tmpdir(), 'restored-s3-'));
  const S3rver = createRequire(join(root, 'tests/package.json'))('s3rver');
  const double = new S3rver({ port: 0, address: '127.0.0.1', silent: true, directory: folder, serviceEndpoint: 'localhost', configureBuckets: [{ name: bucket }] });
  // Its own also removes the folder when it has become empty, while another request is about to write there: that ended the process.
  double.store.deleteObject = (...key) => Promise.all(['object', 'object.md5', 'metadata.json'].map((part) => rm(double.store.getResourcePath(...key, part), { force: true })));
  const { port } = await double.run();
  const s3 = { bucket, seen: [], fault: null, env: { AWS_ACCESS_KEY_ID: 'S3RVER', AWS_SECRET_ACCESS_KEY: 'S3RVER' } };
  const tries = new Map();
  const proxy = http.createServer((request, response) => {
    const name = `${request.method} ${request.url}`;
    tries.set(name, (tries.get(name) ?? 0) + 1);
    const fault = s3.fault?.(request, tries.get(name));
    const entry = { method: request.method, url: request.url, hash: request.headers['x-amz-content-sha256'] };
    s3.seen.push(entry);
    if (fault === 'stall') return;
    const signed = isSigned(request, s3.env.AWS_SECRET_ACCESS_KEY);
    if (fault === 'refuse' || !signed) {
      const [status, code, text] = signed ? [503, 'SlowDown', 'Please reduce your request rate.'] : [403, 'SignatureDoesNotMatch', 'The signature does not match.'];
      request.resume();
      request.on('end', () => response.writeHead(status).end(`<Error><Code>${code}</Code><Message>${text}</Message></Error>`));
      return;
    }
    const sum = createHash('sha256');
    const onward = http.request({ host: '127.0.0.1', port, method: request.method, path: request.url, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      if (fault !== 'cut') { answer.pipe(response); return; }
      const half = Number(answer.headers['content-length']) / 2;
      let sent = 0;
      answer.on('data', (data) => {
        if (sent >= half) return;
        response.write(data.subarray(0, half - sent), () => { if (sent >= half) response.destroy(); });
        sent += data.length;
      });
    });
    onward.on('error', () => response.destroy());
    request.on('data', (data) => sum.update(data));
    request.on('end', () => { entry.sha256 = sum.digest('hex'); });
    request.pipe(onward);
  });
  await new Promise((done) => proxy.listen(0, '127.0.0.1', done));
  s3.port = proxy.address().port;
  s3.endpoint = `http://127.0.0.1:${s3.port}`;
  s3.hangUp = () => proxy.closeAllConnections(); // what is stalled fails now
  s3.stop = async () => {
    proxy.closeAllConnections();
    await new Promise((done) => proxy.close(done));
    double.httpServer.closeAllConnections?.();
    await double.close();
    rmSync(folder, { recursive: true, force: true });
  };
  return s3;
}
