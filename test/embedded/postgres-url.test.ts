import { expect, test } from "bun:test";
import { readPostgresUrl } from "../../db/client.ts";

test("a URL with a host stays as it is", () => {
  for (const url of [
    "postgres://user:p%40ss@db.example:6432/gateway?sslmode=require",
    "postgresql://127.0.0.1/gateway",
    "postgres://one:5432,two:5432/gateway",
    "not a url",
  ]) {
    expect(readPostgresUrl(url)).toEqual({ url });
  }
});

test("both forms of a Unix socket in a URL give the socket's path", () => {
  expect(readPostgresUrl("postgres://user@localhost:5432/gateway?host=%2Fvar%2Frun")).toEqual({
    url: "postgres://user@localhost:5432/gateway",
    path: "/var/run/.s.PGSQL.5432",
  });
  expect(readPostgresUrl("postgresql:///gateway?host=/var/run&port=6432&sslmode=disable")).toEqual({
    url: "postgres://localhost:6432/gateway?sslmode=disable",
    path: "/var/run/.s.PGSQL.6432",
  });
  expect(readPostgresUrl("postgres://user:p%40ss@%2Fvar%2Frun:6432/gateway")).toEqual({
    url: "postgres://user:p%40ss@localhost:6432/gateway",
    path: "/var/run/.s.PGSQL.6432",
  });
});
