import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, call } from "./api.ts";
import { changes } from "./live.ts";

export interface Resource<Data> {
  /** The last loaded data, also during a reload. */
  readonly data: Data | undefined;
  readonly error: string | undefined;
  readonly isLoading: boolean;
  reload(): void;
}

interface LoadResult<Data> {
  readonly path: string;
  readonly data?: Data;
  readonly error?: string;
}

/** Number of times that the viewer has asked to load failed resources again. */
const retries = signal(0);

/** Loads the resources on the page that could not be loaded again. */
export function retryFailed(): void {
  retries.value += 1;
}

/** Minimum time between two reloads because of changed figures, in milliseconds. */
const LIVE_MS = 2_000;
/** Maximum share of the time that reloads can take. Slow resources are therefore reloaded less often. */
const LOADING_SHARE = 1 / 20;

/**
 * Returns the answer of a GET request to the dashboard's API. An undefined path loads nothing.
 *
 * @param isLive whether to reload when figures have changed
 */
export function useResource<Data>(path: string | undefined, isLive = false): Resource<Data> {
  const [loaded, setLoaded] = useState<LoadResult<Data>>();
  const [reloads, setReloads] = useState(0);
  const tookMs = useRef(0);
  const change = useChanges(isLive, tookMs);
  const last = useRef<{ path: string; reloads: number }>(undefined);
  useEffect(() => {
    if (path === undefined) return;
    const stop = new AbortController();
    const isUnattended = last.current?.path === path && last.current.reloads === reloads;
    last.current = { path, reloads };
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
  }, [path, reloads, change]);
  const current = loaded?.path === path ? loaded : undefined;
  const isFailed = useRef(false);
  isFailed.current = current?.error !== undefined;
  useEffect(
    () => retries.subscribe(() => isFailed.current && setReloads((count) => count + 1)),
    [],
  );
  return {
    data: current?.data,
    error: current?.error,
    isLoading: path !== undefined && current === undefined,
    reload: () => setReloads((count) => count + 1),
  };
}

/**
 * Returns a number that increases when figures have changed. The interval depends on the duration of the last
 * load.
 */
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

/** Calls a function when the viewer returns to this tab, for example from the payment processor's page. */
export function useReturn(onReturn: () => void): void {
  const latest = useRef(onReturn);
  latest.current = onReturn;
  useEffect(() => {
    const onChange = () => document.visibilityState === "visible" && latest.current();
    document.addEventListener("visibilitychange", onChange);
    return () => document.removeEventListener("visibilitychange", onChange);
  }, []);
}
