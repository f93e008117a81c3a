/** The random numbers of Python's `random.Random` for a whole number as seed: the Mersenne Twister MT19937. */

const SIZE = 624;
const SHIFT = 397;

export class PythonRandom {
  readonly #state = new Uint32Array(SIZE);
  #next = SIZE;

  /** `seed`: from 0 to 2^53 - 1. */
  constructor(seed: number) {
    const high = Math.floor(seed / 2 ** 32);
    this.#initialize(high === 0 ? [seed >>> 0] : [seed >>> 0, high]);
  }

  /** Return a copy of a list in random order, as `shuffle` of Python orders it. */
  shuffled<Item>(items: readonly Item[]): Item[] {
    const order = [...items];
    for (let last = order.length - 1; last > 0; last--) {
      const other = this.#below(last + 1);
      [order[last], order[other]] = [order[other] as Item, order[last] as Item];
    }
    return order;
  }

  /** Return a whole number below `limit`: of as many bits as it takes, drawn until it is small enough. */
  #below(limit: number): number {
    const unused = Math.clz32(limit);
    let drawn = this.#word() >>> unused;
    while (drawn >= limit) drawn = this.#word() >>> unused;
    return drawn;
  }

  /** `init_by_array` of the reference implementation. */
  #initialize(key: readonly number[]): void {
    const state = this.#state;
    state[0] = 19650218;
    for (let at = 1; at < SIZE; at++) state[at] = Math.imul(1812433253, mixed(state, at)) + at;
    let at = 1;
    let part = 0;
    const advance = (): void => {
      at++;
      if (at < SIZE) return;
      state[0] = state[SIZE - 1] as number;
      at = 1;
    };
    for (let rounds = SIZE; rounds > 0; rounds--) {
      state[at] = ((state[at] as number) ^ Math.imul(mixed(state, at), 1664525)) + (key[part] as number) + part;
      part = (part + 1) % key.length;
      advance();
    }
    for (let rounds = SIZE - 1; rounds > 0; rounds--) {
      state[at] = ((state[at] as number) ^ Math.imul(mixed(state, at), 1566083941)) - at;
      advance();
    }
    state[0] = 0x80000000;
  }

  /** Return the next 32 bits. */
  #word(): number {
    if (this.#next === SIZE) this.#generate();
    let word = this.#state[this.#next++] as number;
    word ^= word >>> 11;
    word ^= (word << 7) & 0x9d2c5680;
    word ^= (word << 15) & 0xefc60000;
    return (word ^ (word >>> 18)) >>> 0;
  }

  #generate(): void {
    const state = this.#state;
    for (let at = 0; at < SIZE; at++) {
      const word = ((state[at] as number) & 0x80000000) | ((state[(at + 1) % SIZE] as number) & 0x7fffffff);
      state[at] = (state[(at + SHIFT) % SIZE] as number) ^ (word >>> 1) ^ (word & 1 ? 0x9908b0df : 0);
    }
    this.#next = 0;
  }
}

/** The word before, mixed with itself. */
function mixed(state: Uint32Array, at: number): number {
  const before = state[at - 1] as number;
  return before ^ (before >>> 30);
}
