import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { askDashboard } from "../support/dashboard-session.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";
import { Authenticator, type Stated } from "./authenticator.ts";
import {
  anyAddress,
  browserOf,
  type Json,
  joined,
  manage,
  PASSWORD,
  type SignedInPerson,
  signInWith,
} from "./people.ts";

const SITE = "gateway.example.com";
const ORIGIN = `https://${SITE}`;

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({
    environment: { GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8", GATEWAY_PUBLIC_URL: ORIGIN },
  });
});
afterAll(() => gateway.stop());

const ask = (path: string, body?: unknown) =>
  askDashboard(gateway, "POST", path, body, anyAddress());
const codeOf = async (response: Response) => ((await response.json()) as Json).error?.code;
const json = async (response: Response) => (await response.json()) as Json;

async function creationOptions(person: SignedInPerson): Promise<Json> {
  const body = { current_password: PASSWORD };
  const response = await person.call("POST", "account/passkeys/options", body);
  if (response.status !== 200) throw new Error(await response.text());
  return json(response);
}

const add = async (
  person: SignedInPerson,
  authenticator: Authenticator,
  stated: Partial<Stated> = {},
) => {
  const options = (await creationOptions(person)) as never;
  const credential = authenticator.create(options, { origin: ORIGIN, ...stated });
  return person.call("POST", "account/passkeys", { name: "Laptop", credential });
};

/** Adds a passkey to the account. Returns its authenticator. */
async function withPasskey(person: SignedInPerson): Promise<Authenticator> {
  const authenticator = new Authenticator();
  const response = await add(person, authenticator);
  if (response.status !== 200) throw new Error(await response.text());
  return authenticator;
}

const signInOptions = async () => (await json(await ask("session/passkey/options"))) as never;

async function signIn(authenticator: Authenticator, stated: Partial<Stated> = {}) {
  const credential = authenticator.sign(await signInOptions(), { origin: ORIGIN, ...stated });
  return ask("session/passkey", { credential });
}

describe("a passkey", () => {
  test("signs its person in without address, password and code of the second factor", async () => {
    const person = await joined(gateway, "admin");
    const authenticator = await withPasskey(person);
    await gateway.sql`UPDATE people SET totp_secret = '\\x00' WHERE email = ${person.email}`;
    expect(await codeOf(await signInWith(gateway, person.email))).toBe("second_factor_required");
    const signedIn = await browserOf(gateway, await signIn(authenticator), person.email);
    expect(signedIn.state).toMatchObject({
      ...{ kind: "organization", person: { email: person.email, role: "admin" } },
    });
    expect((await signedIn.call("GET", "v1/members")).status).toBe(200);
    const list = await json(await signedIn.call("GET", "account/passkeys"));
    expect(list).toEqual({
      data: [
        {
          ...{ id: authenticator.id, name: "Laptop", is_backed_up: false },
          ...{ created_at: expect.any(String), last_used_at: expect.any(String) },
        },
      ],
      ...{ total: 1, needs_password: true },
    });
  });

  test("is added only with the current password, and once", async () => {
    const person = await joined(gateway, "viewer");
    for (const body of [{}, { current_password: "not the right password" }]) {
      const response = await person.call("POST", "account/passkeys/options", body);
      expect([response.status, await codeOf(response)]).toEqual([400, "invalid_body"]);
    }
    const authenticator = await withPasskey(person);
    const options = await creationOptions(person);
    expect(options.excludeCredentials).toMatchObject([{ id: authenticator.id }]);
    expect(await codeOf(await add(person, authenticator))).toBe("name_taken");
    const other = await joined(gateway, "viewer");
    expect(await codeOf(await add(other, authenticator))).toBe("name_taken");
  });

  test("is one of at most 20 of an account", async () => {
    const person = await joined(gateway, "viewer");
    const authenticator = await withPasskey(person);
    await gateway.sql`INSERT INTO passkeys
      SELECT 'copy' || n || ${authenticator.id}, person_id, name, public_key, counter, transports, is_backed_up, created_at
      FROM passkeys, generate_series(2, 19) AS n WHERE id = ${authenticator.id}`;
    const answers = [
      await add(person, new Authenticator()),
      await add(person, new Authenticator()),
    ];
    expect(answers[0]!.status).toBe(200);
    expect(await codeOf(answers[1]!)).toBe("quota_exceeded");
  });

  test("is added without a password if the account has none", async () => {
    const person = await joined(gateway, "viewer");
    await gateway.sql`UPDATE people SET password_hash = NULL WHERE email = ${person.email}`;
    const list = await json(await person.call("GET", "account/passkeys"));
    expect(list.needs_password).toBe(false);
    const response = await person.call("POST", "account/passkeys/options", {});
    const credential = new Authenticator().create((await response.json()) as never, {
      origin: ORIGIN,
    });
    const added = await person.call("POST", "account/passkeys", { name: "Phone", credential });
    expect(added.status).toBe(200);
  });

  test("is not added for another site, without verification of the user, or twice with a challenge", async () => {
    const person = await joined(gateway, "viewer");
    for (const stated of [
      { origin: "https://other.example.com" },
      { rpId: "other.example.com" },
      { isUserVerified: false },
    ]) {
      const response = await add(person, new Authenticator(), stated);
      expect([response.status, await codeOf(response)]).toEqual([400, "invalid_body"]);
    }
    const malformed = new Authenticator().create((await creationOptions(person)) as never, {
      origin: ORIGIN,
    });
    malformed.response.attestationObject = "bnVsbA";
    const body = { name: "Laptop", credential: malformed };
    expect(await codeOf(await person.call("POST", "account/passkeys", body))).toBe("invalid_body");
    // Each account has 5 attempts with its password a minute.
    await gateway.sql`UPDATE people SET password_hash = NULL WHERE email = ${person.email}`;
    const options = (await creationOptions(person)) as never;
    const send = (sender: SignedInPerson) => {
      const credential = new Authenticator().create(options, { origin: ORIGIN });
      return sender.call("POST", "account/passkeys", { name: "Laptop", credential });
    };
    // The challenge is for one person, and another person does not use it up.
    expect(await codeOf(await send(await joined(gateway, "viewer")))).toBe("invalid_body");
    expect((await send(person)).status).toBe(200);
    expect(await codeOf(await send(person))).toBe("invalid_body");
    const late = (await creationOptions(person)) as never;
    await gateway.sql`UPDATE passkey_challenges SET expires_at = now() - interval '1 s'`;
    const credential = new Authenticator().create(late, { origin: ORIGIN });
    const response = await person.call("POST", "account/passkeys", { name: "Laptop", credential });
    expect(await codeOf(response)).toBe("invalid_body");
  });

  test("that was deleted no longer signs in, and only its person deletes it", async () => {
    const person = await joined(gateway, "viewer");
    const authenticator = await withPasskey(person);
    const path = `account/passkeys/${authenticator.id}`;
    const other = await joined(gateway, "owner");
    expect(await codeOf(await other.call("DELETE", path))).toBe("item_not_found");
    expect((await signIn(authenticator)).status).toBe(200);
    expect((await person.call("DELETE", path)).status).toBe(200);
    expect(await codeOf(await signIn(authenticator))).toBe("invalid_credentials");
  });
});

describe("a sign-in with a passkey", () => {
  const rejected = [401, "invalid_credentials"];
  const outcome = async (response: Response) => [response.status, await codeOf(response)];

  test("is rejected for another site, another person, or without verification of the user", async () => {
    const person = await joined(gateway, "viewer");
    const other = await joined(gateway, "viewer");
    const authenticator = await withPasskey(person);
    const otherHandle = Buffer.from(await idOf(other)).toString("base64url");
    for (const stated of [
      { origin: "https://other.example.com" },
      { origin: `http://${SITE}` },
      { rpId: "other.example.com" },
      { isUserVerified: false },
      { userHandle: otherHandle },
      { userHandle: "" },
    ]) {
      expect(await outcome(await signIn(authenticator, stated))).toEqual(rejected);
    }
    expect((await signIn(authenticator)).status).toBe(200);
  });

  test("is rejected if another key signed, and if no account has the passkey", async () => {
    const authenticator = await withPasskey(await joined(gateway, "viewer"));
    const stranger = new Authenticator();
    expect(await outcome(await signIn(stranger))).toEqual(rejected);
    const options = await signInOptions();
    const { response } = stranger.sign(options, { origin: ORIGIN });
    const credential = { ...authenticator.sign(options, { origin: ORIGIN }), response };
    expect(await outcome(await ask("session/passkey", { credential }))).toEqual(rejected);
  });

  test("is rejected if a part of it is malformed", async () => {
    const authenticator = await withPasskey(await joined(gateway, "viewer"));
    for (const part of ["clientDataJSON", "authenticatorData", "signature", "userHandle"]) {
      const credential = authenticator.sign(await signInOptions(), { origin: ORIGIN });
      const response = { ...credential.response, [part]: "bnVsbA" };
      const body = { credential: { ...credential, response } };
      expect(await outcome(await ask("session/passkey", body))).toEqual(rejected);
    }
  });

  test("counts once, and its challenge too, also if it failed", async () => {
    const authenticator = await withPasskey(await joined(gateway, "viewer"));
    const options = await signInOptions();
    const credential = authenticator.sign(options, { origin: ORIGIN });
    const answers = await Promise.all(
      [1, 2, 3].map(async () => (await ask("session/passkey", { credential })).status),
    );
    expect(answers.toSorted()).toEqual([200, 401, 401]);
    const again = authenticator.sign(options, { origin: ORIGIN });
    expect(await outcome(await ask("session/passkey", { credential: again }))).toEqual(rejected);
    const failed = await signInOptions();
    const wrong = authenticator.sign(failed, { origin: "https://other.example.com" });
    await ask("session/passkey", { credential: wrong });
    const right = authenticator.sign(failed, { origin: ORIGIN });
    expect(await outcome(await ask("session/passkey", { credential: right }))).toEqual(rejected);
  });

  test("needs a challenge of the gateway for a sign-in, not older than 5 minutes", async () => {
    const person = await joined(gateway, "viewer");
    const authenticator = await withPasskey(person);
    const send = async (options: unknown) => {
      const credential = authenticator.sign(options as never, { origin: ORIGIN, rpId: SITE });
      return outcome(await ask("session/passkey", { credential }));
    };
    expect(await send({ challenge: "AAAA" })).toEqual(rejected);
    expect(await send(await creationOptions(person))).toEqual(rejected);
    const options = (await signInOptions()) as Json;
    const [row] = await gateway.sql`SELECT expires_at FROM passkey_challenges
      WHERE challenge = ${options.challenge}`;
    expect(row!.expires_at.getTime() - Date.now()).toBeWithin(290_000, 300_001);
    await gateway.sql`UPDATE passkey_challenges SET expires_at = now() - interval '1 s'`;
    expect(await send(options)).toEqual(rejected);
    await signInOptions();
    const [left] = await gateway.sql`SELECT count(*)::int AS count FROM passkey_challenges
      WHERE expires_at < now()`;
    expect(left!.count).toBe(0);
  });

  test("is rejected and recorded if the counter has not grown", async () => {
    const person = await joined(gateway, "viewer");
    const authenticator = await withPasskey(person);
    expect((await signIn(authenticator, { counter: 10 })).status).toBe(200);
    for (const counter of [10, 9, 0]) {
      expect(await outcome(await signIn(authenticator, { counter }))).toEqual(rejected);
    }
    const operator = await addOperator(gateway);
    const path = `admin/audit_log?action=session.rejected&object_id=${await idOf(person)}`;
    const { data } = (await manage(gateway, "GET", path, undefined, operator)).body;
    expect(data.map((act: Json) => act.after)).toEqual(
      [1, 2, 3].map(() => ({ reason: "passkey_counter" })),
    );
    expect((await signIn(authenticator, { counter: 11 })).status).toBe(200);
  });

  test("works with authenticators that do not count", async () => {
    const person = await joined(gateway, "viewer");
    const authenticator = new Authenticator();
    await add(person, authenticator, { counter: 0 });
    for (let at = 0; at < 2; at += 1) {
      expect((await signIn(authenticator, { counter: 0 })).status).toBe(200);
    }
  });

  test("is rejected for a member who is deactivated or removed", async () => {
    const person = await joined(gateway, "viewer");
    const authenticator = await withPasskey(person);
    const path = `members/${person.state.person.member_id}`;
    await manage(gateway, "PATCH", path, { is_active: false });
    expect(await outcome(await signIn(authenticator))).toEqual([403, "role_not_permitted"]);
    await manage(gateway, "PATCH", path, { is_active: true });
    expect((await signIn(authenticator)).status).toBe(200);
    await manage(gateway, "DELETE", path);
    expect(await outcome(await signIn(authenticator))).toEqual([403, "role_not_permitted"]);
  });

  test("is counted by sender, ten calls a minute", async () => {
    const headers = anyAddress();
    const statuses: number[] = [];
    for (let at = 0; at < 12; at += 1) {
      const path = "session/passkey/options";
      statuses.push((await askDashboard(gateway, "POST", path, undefined, headers)).status);
    }
    expect(statuses.slice(-2)).toEqual([429, 429]);
  });

  test("is accepted from the dashboard's own pages only", async () => {
    for (const path of ["session/passkey/options", "session/passkey"]) {
      const credential = new Authenticator().sign(await signInOptions(), { origin: ORIGIN });
      const body = path === "session/passkey" ? { credential } : undefined;
      const headers = { ...anyAddress(), "sec-fetch-site": "cross-site" };
      const response = await askDashboard(gateway, "POST", path, body, headers);
      expect(await outcome(response)).toEqual([403, "cross_origin"]);
    }
  });
});

test("options of a sign-in name no passkey and no account", async () => {
  await withPasskey(await joined(gateway, "viewer"));
  expect(await signInOptions()).toEqual({
    ...{ rpId: SITE, challenge: expect.stringMatching(/^[A-Za-z0-9_-]{43}$/), timeout: 300_000 },
    userVerification: "required",
  } as never);
});

test("audit entries of a passkey have its name only", async () => {
  const person = await joined(gateway, "viewer");
  const authenticator = await withPasskey(person);
  await person.call("DELETE", `account/passkeys/${authenticator.id}`);
  const operator = await addOperator(gateway);
  const path = `admin/audit_log?actor_id=${await idOf(person)}`;
  const { data } = (await manage(gateway, "GET", path, undefined, operator)).body;
  const find = (action: string) => data.find((act: Json) => act.action === action);
  const common = { object: { type: "person", id: await idOf(person) } };
  const named = { name: "Laptop" };
  expect(find("passkey.created")).toMatchObject({ ...common, before: null, after: named });
  expect(find("passkey.deleted")).toMatchObject({ ...common, before: named, after: null });
  expect(JSON.stringify(data)).not.toContain(authenticator.id);
});

test("sessions of keys have no passkeys", async () => {
  const response = await ask("session", { key: gateway.managementKey });
  const session = await browserOf(gateway, response, "");
  expect(await codeOf(await session.call("GET", "account/passkeys"))).toBe("role_not_permitted");
});

test("without a public address, passkeys work at the name of the loopback host only", async () => {
  const local = await startTestGateway({
    environment: { GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8" },
  });
  try {
    const optionsAt = (host: string) =>
      askDashboard(local, "POST", "session/passkey/options", undefined, { ...anyAddress(), host });
    expect(await json(await optionsAt("localhost:4000"))).toMatchObject({ rpId: "localhost" });
    for (const host of ["127.0.0.1:4000", "[::1]:4000", "gateway.internal"]) {
      expect(await codeOf(await optionsAt(host))).toBe("invalid_header");
    }
  } finally {
    await local.stop();
  }
});

async function idOf({ email }: SignedInPerson): Promise<string> {
  const [row] = await gateway.sql`SELECT id FROM people WHERE email = ${email}`;
  return row!.id;
}
