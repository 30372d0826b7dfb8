/** One thing that was looked at. Only what is wrong keeps the gateway from doing its work. */
export interface Finding {
  readonly name: string;
  readonly state: "ok" | "warning" | "wrong";
  readonly detail: string;
}

export function ok(name: string, detail: string): Finding {
  return { name, state: "ok", detail };
}

export function wrong(name: string, reason: unknown): Finding {
  const detail = reason instanceof Error ? reason.message : String(reason);
  return { name, state: "wrong", detail };
}

export function warning(name: string, detail: string): Finding {
  return { name, state: "warning", detail };
}
