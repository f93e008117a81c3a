/** Images in reflective records: extracted on the way to the optimizer, restored on the way to the program. */

import { InvalidResult } from "../base/invalid-result.js";
import type { ImageContent } from "../generated/types.js";
import type { ReflectiveDataset } from "./program.js";

const REFERENCE = "$image";
const MAX_BYTES = 5 * 2 ** 20;
/** Characters of the base64 of the largest image. */
const MAX_BASE64 = Math.ceil(MAX_BYTES / 3) * 4;

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
}

export type Images = Record<string, ImageContent>;

/** Replace each `Image` of the records by a reference; return the records and the images, each once. */
export function extractImages(dataset: ReflectiveDataset): { dataset: ReflectiveDataset; images?: Images } {
  const ids = new Map<string, string>();
  const images: Images = {};

  function replaced(value: unknown, path: string): unknown {
    if (value instanceof Image) {
      if (value.base64.length > MAX_BASE64) {
        throw new InvalidResult(`${path} is an image of more than ${MAX_BYTES} bytes; make it smaller`);
      }
      const key = `${value.mediaType} ${value.base64}`;
      const id = ids.get(key) ?? `image-${ids.size + 1}`;
      ids.set(key, id);
      images[id] = { media_type: value.mediaType, base64: value.base64 };
      return { [REFERENCE]: id };
    }
    if (Array.isArray(value)) return value.map((part, at) => replaced(part, `${path}[${at}]`));
    if (!isPlain(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, replaced(part, `${path}.${name}`)]));
  }

  if (!holdsImage(dataset, new Set())) return { dataset };
  return { dataset: replaced(dataset, "dataset") as ReflectiveDataset, images };
}

/** Replace each reference to one of `images` by an `Image`. */
export function restoreImages(dataset: ReflectiveDataset, images: Images | null | undefined): ReflectiveDataset {
  if (!images) return dataset;

  function replaced(value: unknown): unknown {
    if (Array.isArray(value)) return value.map(replaced);
    if (!isPlain(value)) return value;
    const id = Object.keys(value).length === 1 ? value[REFERENCE] : undefined;
    if (typeof id === "string" && images && Object.hasOwn(images, id)) {
      const content = images[id] as ImageContent;
      return new Image(content.base64, content.media_type);
    }
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, replaced(part)]));
  }

  return replaced(dataset) as ReflectiveDataset;
}

/** Whether there is an image anywhere; `seen` guards against values that contain themselves. */
function holdsImage(value: unknown, seen: Set<unknown>): boolean {
  if (value instanceof Image) return true;
  if (!(Array.isArray(value) || isPlain(value)) || seen.has(value)) return false;
  seen.add(value);
  return Object.values(value).some((part) => holdsImage(part, seen));
}

function isPlain(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}

function base64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  }
  return btoa(text);
}
