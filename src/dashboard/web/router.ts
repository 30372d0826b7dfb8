import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

/*
 * Client-side routing. A page is one path segment under the dashboard, and a section of a page is the next
 * segment. The state of a page is in the query. A proxy can serve the dashboard under any path, so all URLs
 * are relative to the script's.
 */

const script = document.querySelector<HTMLScriptElement>("script[src]")!;
/** URL of the dashboard. Ends in a slash. */
export const dashboardUrl = new URL("..", script.src);
/** URL of the gateway's API. Ends in a slash. */
export const gatewayUrl = new URL("..", dashboardUrl);

const currentUrl = signal(location.href);
window.addEventListener("popstate", () => {
  currentUrl.value = location.href;
});

const url = computed(() => new URL(currentUrl.value));

const path = computed(() =>
  url.value.pathname.slice(dashboardUrl.pathname.length).replace(/\/$/, ""),
);
/** Name of the page in the URL. Empty for the first page. */
export const pageName = computed(() => path.value.split("/")[0]!);
/** Section of the page. Empty for the first section. */
export const sectionName = computed(() => path.value.slice(pageName.value.length + 1));
export const query = computed(() => url.value.searchParams);

type Query = Readonly<Record<string, string | undefined>>;

export function hrefOf(page: string, parameters: Query = {}): string {
  const target = page === "" ? dashboardUrl.pathname.slice(0, -1) : dashboardUrl.pathname + page;
  const search = new URLSearchParams(
    Object.entries(parameters).flatMap(([name, value]) =>
      value === undefined || value === "" ? [] : [[name, value]],
    ),
  );
  return search.size === 0 ? target : `${target}?${search}`;
}

/** Returns the fragment of the URL, and removes it from the address bar. */
export function takeFragment(): string {
  const fragment = location.hash.slice(1);
  if (fragment !== "") history.replaceState(null, "", location.pathname + location.search);
  return fragment;
}

export function navigate(href: string): void {
  history.pushState(null, "", href);
  currentUrl.value = location.href;
  window.scrollTo(0, 0);
}

/**
 * Calls a function if the URL asks for the dialog for a new object, by `?new=1`, and removes the parameter.
 */
export function useNewDialog(open: () => void): void {
  const isRequested = query.value.get("new") === "1";
  useEffect(() => {
    if (!isRequested) return;
    open();
    changeQuery({ new: undefined });
  }, [isRequested]);
}

/** Changes query parameters without a new history entry. Removes undefined parameters. */
export function changeQuery(changed: Query): void {
  const parameters = { ...Object.fromEntries(query.value), ...changed };
  history.replaceState(null, "", hrefOf(path.value, parameters));
  currentUrl.value = location.href;
}
