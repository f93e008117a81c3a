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
  const sums = new Float64Array(rows);
  const counts = new Uint32Array(rows);
  for (const { scores } of candidates) {
    for (let row = 0; row < rows && row < scores.length; row += 1) {
      const score = scores[row] as number;
      if (!Number.isNaN(score)) {
        sums[row] = (sums[row] as number) + score;
        counts[row] = (counts[row] as number) + 1;
      }
    }
  }
  return sums.map((sum, row) => sum / (counts[row] as number));
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
  const clusters = Math.min(MOST_CLUSTERS, count);
  const order = sorted(means);
  const centres = new Float32Array(clusters * width);
  for (let cluster = 0; cluster < clusters; cluster += 1) {
    const row = order[Math.floor(((cluster + 0.5) * count) / clusters)] ?? 0;
    centres.set(features.subarray(row * width, (row + 1) * width), cluster * width);
  }
  const member = new Uint8Array(count);
  const rounds = Math.max(2, Math.min(ROUNDS, Math.floor(MOST_WORK / (count * width * clusters))));
  for (let round = 0; round < rounds; round += 1) {
    const moved = assign(features, centres, member, width, clusters);
    if (!moved && round > 0) break;
    recentre(features, centres, member, width, clusters);
  }
  return ordered(member, means, order, clusters);
}

function assign(features: Float32Array, centres: Float32Array, member: Uint8Array, width: number, clusters: number) {
  let moved = false;
  for (let row = 0; row < member.length; row += 1) {
    let nearest = 0;
    let least = Number.POSITIVE_INFINITY;
    for (let cluster = 0; cluster < clusters; cluster += 1) {
      let distance = 0;
      for (let at = 0; at < width; at += 1) {
        const difference = (features[row * width + at] as number) - (centres[cluster * width + at] as number);
        distance += difference * difference;
      }
      if (distance < least) {
        least = distance;
        nearest = cluster;
      }
    }
    if (member[row] !== nearest) {
      member[row] = nearest;
      moved = true;
    }
  }
  return moved;
}

function recentre(features: Float32Array, centres: Float32Array, member: Uint8Array, width: number, clusters: number) {
  const counts = new Uint32Array(clusters);
  const sums = new Float64Array(clusters * width);
  for (let row = 0; row < member.length; row += 1) {
    const cluster = member[row] as number;
    counts[cluster] = (counts[cluster] as number) + 1;
    for (let at = 0; at < width; at += 1) {
      sums[cluster * width + at] = (sums[cluster * width + at] as number) + (features[row * width + at] as number);
    }
  }
  for (let cluster = 0; cluster < clusters; cluster += 1) {
    const count = counts[cluster] as number;
    for (let at = 0; count && at < width; at += 1) {
      centres[cluster * width + at] = (sums[cluster * width + at] as number) / count;
    }
  }
}

/** Clusters by their mean difficulty, rows by theirs within a cluster. */
function ordered(member: Uint8Array, means: Float64Array, order: Uint32Array, clusters: number): RowOrder {
  const sums = new Float64Array(clusters);
  const counts = new Uint32Array(clusters);
  for (let row = 0; row < member.length; row += 1) {
    const mean = means[row] as number;
    if (Number.isNaN(mean)) continue;
    const cluster = member[row] as number;
    sums[cluster] = (sums[cluster] as number) + mean;
    counts[cluster] = (counts[cluster] as number) + 1;
  }
  const ranked = [...sorted(sums.map((sum, cluster) => sum / (counts[cluster] as number)))];
  const rank = new Uint8Array(clusters);
  ranked.forEach((cluster, at) => {
    rank[cluster] = at;
  });
  const rows = Uint32Array.from(order).sort((a, b) => rankOf(rank, member, a) - rankOf(rank, member, b));
  return { rows, clusters: Uint8Array.from(rows, (row) => rankOf(rank, member, row)) };
}

function rankOf(rank: Uint8Array, member: Uint8Array, row: number): number {
  return rank[member[row] as number] as number;
}
