import { describe, expect, test } from "bun:test";
import { isOutcomeUnknown, isServerUnable } from "../../db/client.ts";
import { asUnavailable } from "../../db/unavailable.ts";

const withCode = (code: unknown) => Object.assign(new Error("failed"), { code });

describe("what a failure says about what was under way", () => {
  test.each([
    "CONNECTION_CLOSED",
    "CONNECTION_DESTROYED",
    "CONNECT_TIMEOUT",
    "ECONNREFUSED",
    "ECONNRESET",
    "EPIPE",
    "ENETUNREACH",
    "EHOSTUNREACH",
    "EMFILE",
    // The server is starting, stopping or full; it knows us no more, or the database is just gone.
    "57P01",
    "57P02",
    "57P03",
    "08006",
    "53300",
    "28P01",
    "28000",
    "3D000",
    "55000",
  ])("nothing, with %s", (code) => {
    expect(isOutcomeUnknown(withCode(code))).toBe(true);
  });

  test.each([
    "22003",
    "23505",
    "22P05",
    "40001",
    "40P01",
    "42883",
    "57014",
    "GW001",
    "UNDEFINED_VALUE",
  ])("that it was not done, with %s", (code) => {
    expect(isOutcomeUnknown(withCode(code))).toBe(false);
  });

  test("that it was not done, where the program itself is at fault", () => {
    const faults = [new TypeError("no such thing"), withCode(5), undefined, null, "text"];
    expect(faults.map(isOutcomeUnknown)).toEqual(faults.map(() => false));
  });
});

describe("what its client is told", () => {
  test.each([
    "CONNECTION_CLOSED",
    "28P01",
    "55000",
    // Read-only, the disk full, the memory full, the disk broken, the statement cancelled.
    "25006",
    "53100",
    "53200",
    "58030",
    "57014",
  ])("that the database is unavailable, and when to come again, with %s", (code) => {
    const told = asUnavailable(withCode(code));
    expect(told).toMatchObject({ code: "database_unavailable", retryAfterSeconds: 1 });
    expect(isServerUnable(withCode(code))).toBe(!isOutcomeUnknown(withCode(code)));
  });

  test.each(["22003", "23505", "42883", "GW001"])("something else, with %s", (code) => {
    expect(asUnavailable(withCode(code))).toBeUndefined();
    expect(isServerUnable(withCode(code))).toBe(false);
  });
});
