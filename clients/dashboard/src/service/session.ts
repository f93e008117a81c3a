/** Who is signed in, for every part of the page. */

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Session } from "./schema";

export const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (session === null) throw new Error("a view is shown without a session");
  return session;
}

/** Whether the person who is signed in may change anything. */
export function useMayWrite(): boolean {
  return useSession().role !== "viewer";
}

/** Whether the person who is signed in may manage keys and read the audit log. */
export function useMayManage(): boolean {
  return useSession().role === "owner";
}
