/** Images in reflective records: extracted on the way to the optimizer, restored on the way to the program. */

import { InvalidResult } from "../base/failure.js";
import { type JsonValue, toJsonValue } from "../base/json.js";
import { isObject } from "../base/values.js";
import type { ImageContent } from "../generated/types.js";
import type { ReflectiveDataset } from "./program.js";

const REFERENCE = "$image";
const MAX_BYTES = 5 * 2 ** 20;
/** Characters of the base64 of the largest image. */
const MAX_BASE64 = Math.ceil(MAX_BYTES / 3) * 4;

/** The ids and contents of the images in the records that are copied now, by their contents. */
let extracted: Map<string, [id: string, content: ImageContent]> | undefined;

/** An image for a reflection model to see; put it anywhere in the records of `makeReflectiveDataset`. */
export class Image {
  readonly base64: string;

  /** `data`: the bytes of the image, or those in base64. `mediaType`: such as `image/png`. */
  constructor(
    data: Uint8Array | string,
    readonly mediaType: string,
  ) {
    this.base64 = typeof data === "string" ? data : base64(data);
  }

  /** A reference while records are copied, else the content. `place`: where it is, for a message. */
  toJSON(place: string): object {
    const content = { media_type: this.mediaType, base64: this.base64 };
    if (extracted === undefined) return content;
    if (this.base64.length > MAX_BASE64) {
      throw new InvalidResult(`${place} is an image of more than ${MAX_BYTES} bytes; make it smaller`);
    }
    const key = `${this.mediaType} ${this.base64}`;
    const [id] = extracted.get(key) ?? [`image-${extracted.size + 1}`];
    extracted.set(key, [id, content]);
    return { [REFERENCE]: id };
  }
}

type Images = Record<string, ImageContent>;

/** Return the records as JSON with a reference in place of each `Image`, and the images, each once. */
export function extractImages(records: ReflectiveDataset): { dataset: JsonValue; images?: Images } {
  extracted = new Map();
  try {
    const dataset = toJsonValue(records, "dataset");
    return extracted.size === 0 ? { dataset } : { dataset, images: Object.fromEntries(extracted.values()) };
  } finally {
    extracted = undefined;
  }
}

/** Replace each reference to one of `images` by an `Image`. */
export function restoreImages(dataset: ReflectiveDataset, images: Images | null | undefined): ReflectiveDataset {
  if (!images) return dataset;

  function replaced(value: unknown): unknown {
    if (Array.isArray(value)) return value.map(replaced);
    if (!isObject(value)) return value;
    const id = Object.keys(value).length === 1 ? value[REFERENCE] : undefined;
    if (typeof id === "string" && images && Object.hasOwn(images, id)) {
      const content = images[id] as ImageContent;
      return new Image(content.base64, content.media_type);
    }
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, replaced(part)]));
  }

  return replaced(dataset) as ReflectiveDataset;
}

function base64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  }
  return btoa(text);
}
