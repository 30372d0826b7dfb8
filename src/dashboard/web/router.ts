import { computed, signal } from "@preact/signals";

/*
 * Pages are one segment below the dashboard, sections of a page another one, and what they show is in the
 * query. A proxy may put all of it below a path of its own, so everything is found from where this script was
 * loaded.
 */

const script = document.querySelector<HTMLScriptElement>("script[src]")!;
/** Ends in a slash. */
export const dashboardUrl = new URL("..", script.src);
/** Of the gateway's API; ends in a slash. */
export const gatewayUrl = new URL("..", dashboardUrl);

const place = signal(location.href);
window.addEventListener("popstate", () => {
  place.value = location.href;
});

const url = computed(() => new URL(place.value));

const path = computed(() =>
  url.value.pathname.slice(dashboardUrl.pathname.length).replace(/\/$/, ""),
);
/** The page that the address names; "" is the first one. */
export const pageName = computed(() => path.value.split("/")[0]!);
/** The section of it; "" is the first one. */
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

export function navigate(href: string): void {
  history.pushState(null, "", href);
  place.value = location.href;
  window.scrollTo(0, 0);
}

/** Changes parameters of the page in place; what is undefined goes. */
export function changeQuery(changed: Query): void {
  const parameters = { ...Object.fromEntries(query.value), ...changed };
  history.replaceState(null, "", hrefOf(path.value, parameters));
  place.value = location.href;
}
