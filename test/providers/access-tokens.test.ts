import { expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import { AccessTokens, type IssuedToken } from "../../src/providers/credentials/access-tokens.ts";
import { ByToken } from "../../src/providers/credentials/by-token.ts";
import { ProviderFailure } from "../../src/providers/interface.ts";
import { CallAbort } from "../../src/providers/transport/call-abort.ts";

/** Tokens that an issuer numbers, each good for an hour. */

const HOUR_MS = 3_600_000;

function issuer(lifetimeMs = HOUR_MS) {
  const clock = new VirtualClock();
  const answers: ((issued: IssuedToken | ProviderFailure) => void)[] = [];
  let requests = 0;
  const tokens = new AccessTokens(clock, () => {
    requests++;
    return new Promise((resolve, reject) => {
      answers.push((issued) =>
        issued instanceof ProviderFailure ? reject(issued) : resolve(issued),
      );
    });
  });
  const settled = () => Bun.sleep(0);
  return {
    clock,
    tokens,
    requests: () => requests,
    async issue() {
      answers.shift()!({ token: `token-${requests}`, lifetimeMs });
      await settled();
    },
    async refuse(failure: ProviderFailure) {
      answers.shift()!(failure);
      await settled();
    },
  };
}

const down = (retryAfterMs?: number) =>
  new ProviderFailure("unavailable", "down", retryAfterMs === undefined ? {} : { retryAfterMs });
const reason = (token: string | Promise<string>) =>
  Promise.resolve(token).then(
    () => "no failure",
    (error: Error) => error.message,
  );

test("calls that come together wait for one request, and later ones get its token at once", async () => {
  const { tokens, issue, requests } = issuer();
  const waiting = Array.from({ length: 200 }, () => tokens.current());
  expect(requests()).toBe(1);
  await issue();
  expect(new Set(await Promise.all(waiting))).toEqual(new Set(["token-1"]));
  expect(tokens.current()).toBe("token-1");
  expect(requests()).toBe(1);
});

test("a token is renewed before its end, by one request, while calls go on with it", async () => {
  const { tokens, issue, clock, requests } = issuer();
  const first = tokens.current();
  await issue();
  expect(await first).toBe("token-1");
  clock.advance(HOUR_MS - 230_000);
  expect(tokens.current()).toBe("token-1");
  expect(requests()).toBe(1);
  clock.advance(10_000);
  for (let call = 0; call < 50; call++) expect(tokens.current()).toBe("token-1");
  expect(requests()).toBe(2);
  await issue();
  expect(tokens.current()).toBe("token-2");
});

test("no call gets a token that has ended, nor one that ends on its way", async () => {
  const { tokens, issue, clock } = issuer();
  const first = tokens.current();
  await issue();
  await first;
  clock.advance(HOUR_MS - 9_000);
  const next = tokens.current();
  expect(next).toBeInstanceOf(Promise);
  await issue();
  expect(await next).toBe("token-2");
});

test("a token of a few seconds is used for half of them", async () => {
  const { tokens, issue, clock } = issuer(8_000);
  const first = tokens.current();
  await issue();
  await first;
  clock.advance(3_999);
  expect(tokens.current()).toBe("token-1");
  clock.advance(1);
  expect(tokens.current()).toBeInstanceOf(Promise);
});

test("a renewal that fails takes the held token from no call until its end", async () => {
  const { tokens, issue, refuse, clock, requests } = issuer();
  const first = tokens.current();
  await issue();
  await first;
  clock.advance(HOUR_MS - 200_000);
  expect(tokens.current()).toBe("token-1");
  await refuse(down());
  expect(tokens.current()).toBe("token-1");
  // Within the pause it is not asked again.
  expect(requests()).toBe(2);
  clock.advance(1_000);
  expect(tokens.current()).toBe("token-1");
  expect(requests()).toBe(3);
});

test("a failing issuer is asked ever less often, and calls in between fail at once", async () => {
  const { tokens, refuse, clock, requests } = issuer();
  const pausesMs = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000];
  for (const [at, pauseMs] of pausesMs.entries()) {
    const asked = reason(tokens.current());
    expect(requests()).toBe(at + 1);
    await refuse(down());
    expect(await asked).toBe("down");
    clock.advance(pauseMs - 1);
    expect(await reason(tokens.current())).toBe("down");
    expect(requests()).toBe(at + 1);
    clock.advance(1);
  }
});

test("an issuer's Retry-After is kept, up to ten minutes", async () => {
  const { tokens, refuse, clock, requests } = issuer();
  const asked = reason(tokens.current());
  await refuse(down(86_400_000));
  await asked;
  clock.advance(599_999);
  await reason(tokens.current());
  expect(requests()).toBe(1);
  clock.advance(1);
  void reason(tokens.current());
  expect(requests()).toBe(2);
});

test("an answer ends the pauses", async () => {
  const { tokens, issue, refuse, clock, requests } = issuer();
  const asked = reason(tokens.current());
  await refuse(down());
  await asked;
  clock.advance(1_000);
  const next = tokens.current();
  await issue();
  expect(await next).toBe("token-2");
  tokens.reject("token-2");
  void reason(tokens.current());
  expect(requests()).toBe(3);
});

test("a token that the provider refuses is replaced, at most once a minute", async () => {
  const { tokens, issue, clock, requests } = issuer();
  const first = tokens.current();
  await issue();
  await first;
  tokens.reject("token-0");
  expect(tokens.current()).toBe("token-1");
  tokens.reject("token-1");
  const next = tokens.current();
  await issue();
  expect(await next).toBe("token-2");
  tokens.reject("token-2");
  expect(tokens.current()).toBe("token-2");
  expect(requests()).toBe(2);
  clock.advance(60_000);
  tokens.reject("token-2");
  void tokens.current();
  expect(requests()).toBe(3);
});

test("a call that ends stops waiting, and the request goes on for the others", async () => {
  const { tokens, issue } = issuer();
  const abort = new CallAbort();
  const gone = reason(tokens.forCall(abort));
  const other = tokens.current();
  abort.abort();
  expect(await gone).toBe("The operation was aborted.");
  await issue();
  expect(await other).toBe("token-1");
});

test("a call that meets 401 is repeated once with the next token", async () => {
  const { tokens, issue } = issuer();
  const made: string[] = [];
  const authorized = new ByToken(tokens, (token) => {
    made.push(token);
    return token;
  });
  const refused = new ProviderFailure("misconfigured", "no", { status: 401 });
  const used: string[] = [];
  const call = authorized.call(new CallAbort(), async (token) => {
    used.push(token);
    if (token === "token-1") throw refused;
    return `answered ${token}`;
  });
  await issue();
  await issue();
  expect(await call).toBe("answered token-2");
  // A provider that takes none meets one call, and no further request for a token.
  const always = authorized.call(new CallAbort(), async (token) => {
    used.push(token);
    throw refused;
  });
  expect(await always.catch((error: unknown) => error)).toBe(refused);
  expect(used).toEqual(["token-1", "token-2", "token-2"]);
  expect(made).toEqual(["token-1", "token-2"]);
});

test("other failures are not repeated, and an aborted wait is an aborted call", async () => {
  const { tokens, issue } = issuer();
  const authorized = new ByToken(tokens, (token) => token);
  let calls = 0;
  const limited = reason(
    authorized.call(new CallAbort(), async () => {
      calls++;
      throw new ProviderFailure("rate_limited", "later", { status: 429 });
    }),
  );
  await issue();
  expect(await limited).toBe("later");
  expect(calls).toBe(1);
  const other = new AccessTokens(new VirtualClock(), () => new Promise(() => undefined));
  const abort = new CallAbort();
  const waiting = new ByToken(other, (token) => token).call(abort, async () => "never");
  abort.abort();
  expect(await waiting.catch((error: unknown) => error)).toMatchObject({ kind: "aborted" });
});
