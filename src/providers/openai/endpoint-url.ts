/**
 * The address of a path below a provider's base URL. The path goes before a query that the base URL
 * may carry, such as Azure's `?api-version=…`; a fragment is dropped.
 */
export function endpointUrl(baseUrl: string, path: string): string {
  const withoutFragment = baseUrl.split("#", 1)[0]!;
  const queryStart = withoutFragment.indexOf("?");
  const base = queryStart === -1 ? withoutFragment : withoutFragment.slice(0, queryStart);
  const query = queryStart === -1 ? "" : withoutFragment.slice(queryStart);
  return `${base.replace(/\/+$/, "")}${path}${query}`;
}
