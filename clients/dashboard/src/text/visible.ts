/** Text of programs, models and rows made safe to read: characters that hide, reorder or control become visible. */

const NAMED: Record<number, string> = { 127: "\u2421" };

/**
 * Control characters other than tab and newline, bidirectional controls, invisible characters that change how other
 * text is shown, and surrogates without their pair.
 */
const HIDDEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: finding them is what this is for
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** Return the text with each hidden character as a sign: NUL as its picture, others by their number. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (found) => {
    const code = found.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return NAMED[code] ?? `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  });
}

/** Return the beginning of the text as one line of at most `length` characters. */
export function line(text: string, length = 120): string {
  const flat = visible(
    text
      .slice(0, 4 * length)
      .replace(/\s+/g, " ")
      .replace(/(?<=\d) (->|\u2192) (?=\d)/g, "\u00a0$1\u00a0") // two scores stay on one line
      .trim(),
  );
  return flat.length > length || text.length > 4 * length ? `${flat.slice(0, length - 1)}\u2026` : flat;
}
