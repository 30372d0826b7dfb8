import { afterAll, beforeAll, expect, test } from "bun:test";
import { readConfig } from "../../src/platform/config.ts";
import { askDashboard } from "../support/dashboard-session.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type SmtpServer, startSmtpServer } from "../support/smtp-server.ts";
import { until } from "../support/until.ts";
import { anyAddress, invite, joined, PASSWORD, signInWith, uniqueEmail } from "./people.ts";

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

/** Pages at the public address send its origin. */
const ask = (path: string, body: unknown, more: Record<string, string> = {}) =>
  askDashboard(gateway, "POST", path, body, { ...anyAddress(), ...more });
const mailTo = (email: string, subject: string) =>
  until(`a message to ${email}`, async () =>
    smtp.messages.find(({ to, text }) => to === email && text.includes(subject)),
  );
const LINK = /https:\/\/gateway\.example\.com\/dashboard\/[a-z-]+#([\w-]{43})/;

test("invitations are mailed with the link at the public address, whatever Host the request has", async () => {
  const { email, token, mailed } = await invite(gateway, "viewer");
  expect(mailed).toBe("sent");
  const { text } = await mailTo(email, "Invitation");
  expect(text).toContain("From: gateway@example.com");
  expect(LINK.exec(text)?.[1]).toBe(token);
});

test("a forgotten password is replaced by a mailed link, once, and nobody else gets mail", async () => {
  const person = await joined(gateway, "viewer");
  const before = smtp.messages.length;
  const unknown = await ask("password/forgot", { email: uniqueEmail() });
  const known = await ask("password/forgot", { email: person.email }, { host: "evil.example" });
  expect([unknown.status, known.status]).toEqual([200, 200]);
  expect(await unknown.json()).toEqual(await known.json());
  const { text } = await mailTo(person.email, "New password");
  expect(smtp.messages.length).toBe(before + 1);
  const reset = { token: LINK.exec(text)![1], password: "a new long password" };
  expect((await ask("password/reset", reset)).status).toBe(200);
  expect((await ask("password/reset", reset)).status).toBe(404);
  expect((await signInWith(gateway, person.email, PASSWORD)).status).toBe(401);
  expect((await signInWith(gateway, person.email, "a new long password")).status).toBe(200);
});

test("an invitation is made although the mail server is down", async () => {
  smtp.stop();
  const { token, mailed } = await invite(gateway, "viewer");
  expect(token).toHaveLength(43);
  expect(mailed).toBe("failed");
});

test("a mail server needs a sender and a public address", () => {
  const base = { SMTP_URL: "smtp://127.0.0.1" };
  expect(() => readConfig(base)).toThrow("SMTP_FROM");
  expect(() => readConfig({ ...base, SMTP_FROM: "a@b.c" })).toThrow("GATEWAY_PUBLIC_URL");
});
