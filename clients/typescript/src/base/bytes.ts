/** Bytes: joined, and read from a web stream up to a limit. */

/** The whole body (empty if there is none); undefined if it is longer than `limit` bytes, in which case reading stopped. */
export async function bytesOf(body: ReadableStream<Uint8Array> | null, limit: number): Promise<Uint8Array | undefined> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = body?.getReader();
  for (let part = await reader?.read(); part?.value !== undefined; part = await reader?.read()) {
    length += part.value.length;
    if (length > limit) {
      await reader?.cancel();
      return undefined;
    }
    chunks.push(part.value);
  }
  return chunks.length === 1 ? chunks[0] : joined(chunks);
}

/** The bytes of all parts, one after another. */
export function joined(chunks: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(chunks.reduce((length, chunk) => length + chunk.length, 0));
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}
