export interface PostgresAddress {
  readonly url: string;
  /** The Unix socket to dial in place of the URL's host and port. */
  readonly path?: string;
}

const DEFAULT_PORT = "5432";

/**
 * Tells a Unix socket apart from a host in a connection URL, which the driver does not do itself:
 * `postgres://user@localhost/db?host=/folder` and `postgres://user@%2Ffolder/db`, as libpq has them
 * (PostgreSQL documentation, 32.1.1.2 Connection URIs). Hand both parts of the answer to the driver:
 * `postgres(address.url, { path: address.path })`.
 */
export function readPostgresUrl(url: string): PostgresAddress {
  if (!URL.canParse(url)) return { url };
  const parsed = new URL(url);
  const folder = parsed.searchParams.get("host") ?? decodeURIComponent(parsed.hostname);
  if (!folder.startsWith("/")) return { url };
  const port = parsed.searchParams.get("port") ?? (parsed.port || DEFAULT_PORT);
  parsed.searchParams.delete("host");
  parsed.searchParams.delete("port");
  const user = parsed.username === "" ? "" : `${parsed.username}@`;
  const login = parsed.password === "" ? user : `${parsed.username}:${parsed.password}@`;
  return {
    url: `postgres://${login}localhost:${port}${parsed.pathname}${parsed.search}`,
    path: `${folder}/.s.PGSQL.${port}`,
  };
}
