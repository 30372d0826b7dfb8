import { afterAll, beforeAll, expect, test } from "bun:test";
import { joined, manage, type SignedInPerson } from "../people/people.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type SmtpServer, startSmtpServer } from "../support/smtp-server.ts";
import { until } from "../support/until.ts";
import { emitAlerts, SAMPLE_BUDGET } from "./chats.ts";

let smtp: SmtpServer;
let gateway: TestGateway;
beforeAll(async () => {
  smtp = await startSmtpServer();
  gateway = await startTestGateway({
    environment: {
      ...{ SMTP_URL: smtp.url, SMTP_FROM: "gateway@example.com" },
      GATEWAY_PUBLIC_URL: "https://gateway.example.com",
      GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8",
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  smtp.stop();
});

interface Organization {
  readonly id: string;
  readonly key: string;
}

async function addOrganization(): Promise<Organization> {
  const { organization, managementKey } = await gateway.addOrganization();
  return { id: organization.id, key: managementKey };
}

/** A member with a verified address. */
async function addPerson(role: string, { key }: Organization): Promise<SignedInPerson> {
  const person = await joined(gateway, role, { key });
  await gateway.sql`UPDATE people SET email_verified_at = now() WHERE email = ${person.email}`;
  return person;
}

const memberIdOf = ({ state }: SignedInPerson) => state.person.member_id as string;
const choose = (person: SignedInPerson, alerts: readonly string[]) =>
  person.call("PATCH", "account/alerts", { alerts });
const mailsOf = ({ email }: SignedInPerson) =>
  smtp.messages.filter(({ to, text }) => to === email && !text.includes("Invitation"));
const low = (balance: number) => ({ balance_usd: balance, threshold_usd: 1 });

/** Waits until all channels of the organization have nothing left. */
const settled = ({ id }: Organization) =>
  until("no alert waits", async () => {
    const [open] = await gateway.sql`
      SELECT 1 FROM alerts a WHERE organization_id = ${id} AND sequence IS NULL
      UNION ALL SELECT 1 FROM alert_states WHERE organization_id = ${id} AND due_at <= now() LIMIT 1`;
    return open === undefined;
  });

test("a member gets the alerts that it chose, with a link, in text and in HTML", async () => {
  const organization = await addOrganization();
  const person = await addPerson("admin", organization);
  expect((await choose(person, ["balance"])).status).toBe(200);
  await emitAlerts(gateway, organization.id, "budget.threshold", [SAMPLE_BUDGET]);
  await emitAlerts(gateway, organization.id, "credits.low", [low(0.95)]);
  const { text } = await until("a mail", () => mailsOf(person)[0]);
  expect(text).toContain("The balance has fallen to $0.95. The threshold is $1.00.");
  expect(text).toContain("Dashboard: https://gateway.example.com/dashboard/settings/billing");
  expect(text).toContain("<li>The balance has fallen to $0.95.");
  expect(text).not.toContain("Search");
  await settled(organization);
  expect(mailsOf(person).length).toBe(1);
  const state = await (await person.call("GET", "account/alerts")).json();
  expect(state).toMatchObject({ alerts: ["balance"], mail: true, enabled: true, last_error: null });
  expect(state.last_sent_at).not.toBeNull();
});

test("a developer gets alerts about its own keys and budget only", async () => {
  const organization = await addOrganization();
  const [ada, bob] = [
    await addPerson("developer", organization),
    await addPerson("developer", organization),
  ];
  const possible = (await (await ada.call("GET", "account/alerts")).json()).possible;
  expect(possible).toEqual(["budgets", "jobs"]);
  expect((await choose(ada, ["balance"])).status).toBe(403);
  for (const person of [ada, bob])
    expect((await choose(person, ["budgets", "jobs"])).status).toBe(200);
  const ownKey = async (person: SignedInPerson, name: string) =>
    (
      await manage(
        gateway,
        "POST",
        "keys",
        { name, owner_id: memberIdOf(person), scopes: ["models:read"] },
        organization.key,
      )
    ).body.id as string;
  const of = (key_id: string, key_name: string) => ({ ...SAMPLE_BUDGET, key_id, key_name });
  await emitAlerts(gateway, organization.id, "budget.threshold", [
    of(await ownKey(ada, "Key of Ada"), "Key of Ada"),
    of(await ownKey(bob, "Key of Bob"), "Key of Bob"),
    { ...SAMPLE_BUDGET, key_id: null, key_name: null, subject: { type: "team", id: "team_1" } },
    {
      ...SAMPLE_BUDGET,
      key_id: null,
      key_name: null,
      subject: { type: "member", id: memberIdOf(bob) },
    },
  ]);
  await until("both have mail", () => mailsOf(ada).length > 0 && mailsOf(bob).length > 0);
  await settled(organization);
  const texts = (person: SignedInPerson) =>
    mailsOf(person)
      .map(({ text }) => text)
      .join("\n");
  expect(texts(ada)).toContain("Key of Ada");
  expect(texts(ada)).not.toContain("Key of Bob");
  expect(texts(ada)).not.toContain("team_1");
  expect(texts(bob)).toContain("Key of Bob");
  expect(texts(bob)).toContain("The developer");
  expect(texts(bob)).not.toContain("Key of Ada");
});

test("a role that is taken away takes its alerts along, and a removed member gets no more mail", async () => {
  const organization = await addOrganization();
  const [demoted, removed, witness] = [
    await addPerson("admin", organization),
    await addPerson("viewer", organization),
    await addPerson("owner", organization),
  ];
  for (const person of [demoted, removed, witness]) await choose(person, ["balance", "webhooks"]);
  const change = (method: string, person: SignedInPerson, body?: object) =>
    manage(gateway, method, `members/${memberIdOf(person)}`, body, organization.key);
  expect((await change("PATCH", demoted, { role: "developer" })).status).toBe(200);
  expect((await change("DELETE", removed)).status).toBe(200);
  await emitAlerts(gateway, organization.id, "credits.low", [low(0.5)]);
  await until("the owner has mail", () => mailsOf(witness).length === 1);
  await settled(organization);
  expect(mailsOf(demoted)).toEqual([]);
  expect(mailsOf(removed)).toEqual([]);
});

test("no mail goes to an address that is not verified, and the page says so", async () => {
  const organization = await addOrganization();
  const [unverified, witness] = [
    await addPerson("admin", organization),
    await addPerson("admin", organization),
  ];
  await gateway.sql`UPDATE people SET email_verified_at = NULL WHERE email = ${unverified.email}`;
  for (const person of [unverified, witness]) await choose(person, ["balance"]);
  await emitAlerts(gateway, organization.id, "credits.low", [low(0.5)]);
  await until("the other one has mail", () => mailsOf(witness).length === 1);
  await settled(organization);
  expect(mailsOf(unverified)).toEqual([]);
  const state = await (await unverified.call("GET", "account/alerts")).json();
  expect(state.is_verified).toBe(false);
  expect((await unverified.call("POST", "account/alerts/test")).status).toBe(400);
});

test("a test is mailed immediately, once in ten seconds", async () => {
  const organization = await addOrganization();
  const person = await addPerson("viewer", organization);
  await choose(person, ["webhooks"]);
  const tested = await person.call("POST", "account/alerts/test");
  expect(await tested.json()).toMatchObject({ delivered: true, error: null });
  expect(mailsOf(person)[0]!.text).toContain("This is a test");
  expect((await person.call("POST", "account/alerts/test")).status).toBe(429);
});

test("names in mail are never markup, headers or further recipients", async () => {
  const organization = await addOrganization();
  const person = await addPerson("owner", organization);
  await gateway.sql`UPDATE organizations SET name = ${"<b>A</b>\r\nBcc: evil@example.com"} WHERE id = ${organization.id}`;
  await choose(person, ["budgets"]);
  const key_name = "<img src=x onerror=alert(1)> \"&'";
  await emitAlerts(gateway, organization.id, "budget.threshold", [{ ...SAMPLE_BUDGET, key_name }]);
  const { text } = await until("a mail", () => mailsOf(person)[0]);
  const [, html] = text.split("<!doctype html>");
  expect(html).not.toContain("<img");
  expect(html).not.toContain("<b>");
  expect(html).toContain("&lt;img src=x onerror=alert(1)&gt; &quot;&amp;&#39;");
  expect(text).not.toMatch(/^Bcc:/m);
  expect(smtp.messages.some(({ to }) => to === "evil@example.com")).toBe(false);
});

test("without a choice, and after an empty one, no mail comes", async () => {
  const organization = await addOrganization();
  const [never, stopped, witness] = [
    await addPerson("admin", organization),
    await addPerson("admin", organization),
    await addPerson("admin", organization),
  ];
  await choose(stopped, ["balance"]);
  await choose(stopped, []);
  await choose(witness, ["balance"]);
  await emitAlerts(gateway, organization.id, "credits.low", [low(0.5)]);
  await until("the other one has mail", () => mailsOf(witness).length === 1);
  await settled(organization);
  expect([...mailsOf(never), ...mailsOf(stopped)]).toEqual([]);
});

test("a gateway without a mail server says so, and skips the alerts", async () => {
  const silent = await startTestGateway({
    environment: { GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8" },
  });
  const person = await joined(silent, "owner");
  await person.call("PATCH", "account/alerts", { alerts: ["balance"] });
  expect(await (await person.call("GET", "account/alerts")).json()).toMatchObject({ mail: false });
  expect((await person.call("POST", "account/alerts/test")).status).toBe(400);
  await emitAlerts(silent, silent.organizationId, "credits.low", [low(0.5)]);
  await until("the alert is skipped", async () => {
    const [state] = await silent.sql<{ is_skipped: boolean }[]>`SELECT sequence >= (
      SELECT last_sequence FROM alert_numbering) AND due_at IS NULL AS is_skipped FROM alert_states`;
    return state?.is_skipped;
  });
  await silent.stop();
});
