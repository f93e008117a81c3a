/** Orders of the validation rows: by difficulty, or by cluster of behaviour. */

/** Candidates whose scores describe a row when rows are clustered; more add time and little else. */
const MOST_FEATURES = 64;
const MOST_CLUSTERS = 8;
const ROUNDS = 25;
/** Differences of scores that a clustering computes at most, about a third of a second. */
const MOST_WORK = 200_000_000;

export interface Scored {
  /** Aligned with the validation rows; NaN for a missing score. */
  readonly scores: Float64Array;
}

export interface RowOrder {
  /** Rows in the order shown. */
  readonly rows: Uint32Array;
  /** The cluster of each row in that order, from 0; all 0 if rows are not clustered. */
  readonly clusters: Uint8Array;
}

/** Return the mean score of each row over the candidates that have one; NaN if none has. */
export function rowMeans(candidates: readonly Scored[], rows: number): Float64Array {
  const of = (row: number) => meanOf(candidates.length, (at) => candidates[at]?.scores[row]);
  return Float64Array.from({ length: rows }, (_, row) => of(row));
}

/** Return the mean of the numbers among these values; NaN if there are none. */
function meanOf(count: number, valueAt: (at: number) => number | undefined): number {
  let [sum, numbers] = [0, 0];
  for (let at = 0; at < count; at += 1) {
    const value = valueAt(at);
    if (value === undefined || Number.isNaN(value)) continue;
    sum += value;
    numbers += 1;
  }
  return sum / numbers;
}

export function asRecorded(rows: number): RowOrder {
  return { rows: Uint32Array.from({ length: rows }, (_, row) => row), clusters: new Uint8Array(rows) };
}

/** The lowest mean first; rows without a score last. */
export function byDifficulty(means: Float64Array): RowOrder {
  return { rows: sorted(means), clusters: new Uint8Array(means.length) };
}

function sorted(keys: Float64Array): Uint32Array {
  const key = (row: number) => (Number.isNaN(keys[row]) ? Number.POSITIVE_INFINITY : (keys[row] as number));
  return Uint32Array.from({ length: keys.length }, (_, row) => row).sort((a, b) => {
    const [first, second] = [key(a), key(b)];
    return first < second ? -1 : first > second ? 1 : a - b;
  });
}

/**
 * Put rows together on which the candidates behave alike: k-means of the rows' scores, started from rows spread
 * evenly over the order by difficulty, so that the result follows from the scores alone.
 */
export function byCluster(candidates: readonly Scored[], means: Float64Array): RowOrder {
  const count = means.length;
  const step = Math.max(1, Math.ceil(candidates.length / MOST_FEATURES));
  const chosen = candidates.filter((_, at) => at % step === 0);
  const width = chosen.length;
  const features = new Float32Array(count * width);
  for (const [at, { scores }] of chosen.entries()) {
    for (let row = 0; row < count; row += 1) {
      const score = scores[row] ?? Number.NaN;
      const mean = means[row] as number;
      features[row * width + at] = Number.isNaN(score) ? (Number.isNaN(mean) ? 0 : mean) : score;
    }
  }
  const order = sorted(means);
  const clusters = Math.min(MOST_CLUSTERS, count);
  let centres: Float32Array[] = Array.from({ length: clusters }, (_, cluster) => {
    const row = order[Math.floor(((cluster + 0.5) * count) / clusters)] ?? 0;
    return features.subarray(row * width, (row + 1) * width);
  });
  let member = new Uint8Array(count);
  const rounds = Math.max(2, Math.min(ROUNDS, Math.floor(MOST_WORK / (count * width * clusters))));
  for (let round = 0; round < rounds; round += 1) {
    const next = member.map((_, row) => nearest(features.subarray(row * width, (row + 1) * width), centres));
    if (round > 0 && next.every((cluster, row) => cluster === member[row])) break;
    member = next;
    centres = centres.map((centre, cluster) => centreOf(features, member, cluster, centre));
  }
  // Clusters by their mean difficulty, rows by theirs within a cluster.
  const difficulty = Float64Array.from(centres, (_, cluster) =>
    meanOf(count, (row) => (member[row] === cluster ? means[row] : undefined)),
  );
  const ranked = [...sorted(difficulty)];
  const rank = (row: number) => ranked.indexOf(member[row] as number);
  const rows = Uint32Array.from(order).sort((a, b) => rank(a) - rank(b));
  return { rows, clusters: Uint8Array.from(rows, rank) };
}

function nearest(row: Float32Array, centres: readonly Float32Array[]): number {
  let [found, least] = [0, Number.POSITIVE_INFINITY];
  for (const [cluster, centre] of centres.entries()) {
    let distance = 0;
    for (let at = 0; at < row.length; at += 1) distance += ((row[at] as number) - (centre[at] as number)) ** 2;
    if (distance < least) [found, least] = [cluster, distance];
  }
  return found;
}

/** Return the mean of a cluster's rows; its last centre if it has none. */
function centreOf(features: Float32Array, member: Uint8Array, cluster: number, last: Float32Array): Float32Array {
  const sums = new Float32Array(last.length);
  let count = 0;
  for (let row = 0; row < member.length; row += 1) {
    if (member[row] !== cluster) continue;
    count += 1;
    for (let at = 0; at < sums.length; at += 1)
      sums[at] = (sums[at] as number) + (features[row * sums.length + at] as number);
  }
  return count === 0 ? last : sums.map((sum) => sum / count);
}
