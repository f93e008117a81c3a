/** What may be asked of a running run; see gepa_client/journal/steer_entries.py. */
export type SteerAction =
  | { readonly kind: "pause" | "cancel" | "unpin" | "clear_hints" }
  | { readonly kind: "pin" | "drop"; readonly candidate: number }
  | { readonly kind: "propose"; readonly texts: Readonly<Record<string, string>>; readonly parent: number | null }
  | { readonly kind: "hint"; readonly text: string; readonly proposals?: number }
  | {
      readonly kind: "budget";
      readonly max_metric_calls?: number;
      readonly max_cost_usd?: number;
      readonly max_seconds?: number;
    };
