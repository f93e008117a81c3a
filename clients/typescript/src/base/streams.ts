/** Web streams: read as a whole up to a limit, or as their parts pass. */

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

/**
 * Return a stream of the same parts, which are read here as they pass; `onEnd` is called once, with an error if it fails.
 *
 * `onStop`: called in place of `onEnd` if the reader stops before the end.
 */
export function tapped<Part>(
  stream: ReadableStream<Part>,
  onPart: (part: Part) => void,
  onEnd: (error?: unknown) => void,
  onStop: () => void = onEnd,
): ReadableStream<Part> {
  const reader = stream.getReader();
  return new ReadableStream<Part>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) {
          onEnd();
          controller.close();
        } else {
          onPart(value);
          controller.enqueue(value);
        }
      } catch (error) {
        onEnd(error);
        throw error;
      }
    },
    async cancel(reason) {
      onStop();
      await reader.cancel(reason);
    },
  });
}
