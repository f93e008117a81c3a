/** Whether the nightly suite runs: each field gets each hostile string, and a whole run is followed. */
export const NIGHTLY = process.env.NIGHTLY === "1";
