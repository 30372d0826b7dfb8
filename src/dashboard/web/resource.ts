import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, call } from "./api.ts";
import { changes } from "./live.ts";

export interface Resource<Data> {
  /** What was loaded last, also while it is loaded again. */
  readonly data: Data | undefined;
  readonly error: string | undefined;
  readonly isLoading: boolean;
  reload(): void;
}

interface Loaded<Data> {
  readonly path: string;
  readonly data?: Data;
  readonly error?: string;
}

/** At most so often is something loaded again because figures have changed. */
const LIVE_MS = 2_000;
/** What is slow to load is loaded less often: it takes this part of the time at most. */
const LOADING_SHARE = 1 / 20;

/**
 * What a GET of the dashboard's API answers; undefined asks for nothing.
 *
 * @param isLive whether it is loaded again when figures have changed
 */
export function useResource<Data>(path: string | undefined, isLive = false): Resource<Data> {
  const [loaded, setLoaded] = useState<Loaded<Data>>();
  const [asked, setAsked] = useState(0);
  const tookMs = useRef(0);
  const change = useChanges(isLive, tookMs);
  const last = useRef<{ path: string; asked: number }>(undefined);
  useEffect(() => {
    if (path === undefined) return;
    const stop = new AbortController();
    const isUnattended = last.current?.path === path && last.current.asked === asked;
    last.current = { path, asked };
    const startedMs = performance.now();
    call<Data>("GET", path, { signal: stop.signal, isUnattended })
      .then((data) => setLoaded({ path, data }))
      .catch((error: unknown) => {
        if (stop.signal.aborted) return;
        const message = error instanceof ApiError ? error.message : String(error);
        setLoaded((before) => ({ ...(before?.path === path && before), path, error: message }));
      })
      .finally(() => {
        tookMs.current = performance.now() - startedMs;
      });
    return () => stop.abort();
  }, [path, asked, change]);
  const current = loaded?.path === path ? loaded : undefined;
  return {
    data: current?.data,
    error: current?.error,
    isLoading: path !== undefined && current === undefined,
    reload: () => setAsked((count) => count + 1),
  };
}

/** A number that moves when figures have changed, but not more often than what is loaded then allows. */
function useChanges(isLive: boolean, tookMs: { readonly current: number }): number {
  const [shown, setShown] = useState(0);
  useEffect(() => {
    if (!isLive) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let atMs = Date.now();
    const unsubscribe = changes.subscribe((count) => {
      if (timer !== undefined || count === 0) return;
      const intervalMs = Math.max(LIVE_MS, tookMs.current / LOADING_SHARE);
      timer = setTimeout(
        () => {
          timer = undefined;
          atMs = Date.now();
          setShown((before) => before + 1);
        },
        Math.max(0, atMs + intervalMs - Date.now()),
      );
    });
    return () => {
      unsubscribe();
      clearTimeout(timer);
    };
  }, [isLive]);
  return shown;
}

/** Calls when the viewer comes back to this tab, such as from the payment processor's page. */
export function useReturn(onReturn: () => void): void {
  const latest = useRef(onReturn);
  latest.current = onReturn;
  useEffect(() => {
    const onChange = () => document.visibilityState === "visible" && latest.current();
    document.addEventListener("visibilitychange", onChange);
    return () => document.removeEventListener("visibilitychange", onChange);
  }, []);
}
