// What a user of the client that openapi-typescript makes of /openapi.json writes. openapi.test.mjs makes ./openapi.d.ts,
// compiles this with it, and calls both functions with the real server.
import createClient from 'openapi-fetch';
import type { paths } from './openapi';

function connect(baseUrl: string) {
  const form = (body: object) => {
    const data = new FormData();
    for (const [name, value] of Object.entries(body)) data.append(name, value instanceof Blob ? value : String(value));
    return data;
  };
  return createClient<paths>({ baseUrl, bodySerializer: (body) => (body ? form(body as object) : undefined) });
}

export async function restore(url: string, photo: Blob): Promise<Blob> {
  const { data, error } = await connect(url).POST('/v1/restore', {
    body: { image: photo, upscale: 3, ext: 'png', version: 'none', bg_upsampler: 'none' },
    parseAs: 'blob',
  });
  if (!data) throw new Error(`${error?.code}: ${error?.detail}`);
  return data as unknown as Blob; // which parseAs makes it, though openapi-fetch's types say so only where there is no body
}

export async function restoreLater(url: string, photo: Blob): Promise<{ faces: number; picture: Blob }> {
  const client = connect(url);
  const accepted = await client.POST('/v1/restore', {
    params: { header: { Prefer: 'respond-async', 'Idempotency-Key': 'a typed client' } },
    body: { image: photo, weight: 0.5, faces_out: true },
  });
  const id = accepted.response.headers.get('location')?.split('/').pop();
  if (accepted.response.status !== 202 || !id) throw new Error(accepted.error?.detail);
  for (;;) {
    const { data: job } = await client.GET('/v1/jobs/{id}', { params: { path: { id } } });
    if (job?.state === 'failed' || job?.state === 'cancelled') throw new Error(job.error?.detail);
    if (job?.state === 'done') {
      const { data: picture } = await client.GET('/v1/jobs/{id}/result', { params: { path: { id } }, parseAs: 'blob' });
      return { faces: job.faces?.length ?? 0, picture: picture! };
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

// What the types refuse; each line is an error without its comment.
export const wrong = (url: string, photo: Blob) => [
  // @ts-expect-error: upscale is none of the options of a detection
  connect(url).POST('/v1/detect', { params: { query: { upscale: 2 } }, body: { image: photo } }),
  // @ts-expect-error: ext is none of the words
  connect(url).POST('/v1/restore', { body: { image: photo, ext: 'bmp' } }),
  // @ts-expect-error: the path needs an id
  connect(url).GET('/v1/jobs/{id}', {}),
];
