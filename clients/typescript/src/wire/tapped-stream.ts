/** Read a stream's parts as they pass. */

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
