import { DelegraphError, throwIfAborted } from './errors.js';

/** Returns the bytes of a model: given as bytes, or read from a URL, a Response or a Blob. */
export async function readModel(source, { signal, onProgress } = {}) {
  throwIfAborted(signal);
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  if (typeof Blob !== 'undefined' && source instanceof Blob) return new Uint8Array(await source.arrayBuffer());
  const isResponse = typeof Response !== 'undefined' && source instanceof Response;
  if (!isResponse && typeof source !== 'string' && !(source instanceof URL)) {
    throw new DelegraphError('invalid-input', 'a model is a URL, bytes, a Response or a Blob');
  }
  const response = isResponse ? source : await open(source, signal);
  if (!response.ok) {
    throw new DelegraphError('network', `${response.url || source}: ${response.status} ${response.statusText}`);
  }
  return readBody(response, signal, onProgress);
}

async function open(url, signal) {
  try {
    return await fetch(url, { signal });
  } catch (error) {
    throwIfAborted(signal);
    throw new DelegraphError('network', `${url}: ${error.message}`, { cause: error });
  }
}

async function readBody(response, signal, onProgress) {
  // The length of a compressed body differs from that of the model.
  const encoded = response.headers.get('content-encoding');
  const total = encoded ? undefined : Number(response.headers.get('content-length')) || undefined;
  const reader = response.body?.getReader();
  if (!reader) return new Uint8Array(await response.arrayBuffer());
  const chunks = [];
  let loaded = 0;
  try {
    for (;;) {
      throwIfAborted(signal);
      const { done, value } = await reader.read();
      if (done) break;
      chunks.push(value);
      loaded += value.length;
      onProgress?.({ loaded, total });
    }
  } catch (error) {
    reader.cancel().catch(() => {});
    throwIfAborted(signal);
    throw new DelegraphError('network', `${response.url}: ${error.message}`, { cause: error });
  }
  const bytes = new Uint8Array(loaded);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.length;
  }
  return bytes;
}
