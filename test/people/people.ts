import { askDashboard, type DashboardBrowser } from "../support/dashboard-session.ts";
import type { TestGateway } from "../support/gateway.ts";

// biome-ignore lint/suspicious/noExplicitAny: bodies that the tests compare
export type Json = Record<string, any>;

export const PASSWORD = "a long enough password";

let people = 0;
export const uniqueEmail = () => `person${++people}.${crypto.randomUUID().slice(0, 8)}@example.com`;

/** Sends a request with a management key, that of the first organization unless stated. */
export async function manage(
  gateway: TestGateway,
  method: string,
  path: string,
  body?: unknown,
  key = gateway.managementKey,
): Promise<{ status: number; body: Json }> {
  const response = await gateway.request(method, `/v1/${path}`, body, { key });
  return { status: response.status, body: (await response.json()) as Json };
}

/** Returns the token of an invitation's link. */
export async function invite(
  gateway: TestGateway,
  role: string,
  { email = uniqueEmail(), key = gateway.managementKey, team_ids = [] as string[] } = {},
): Promise<{ email: string; token: string; id: string; mailed: string }> {
  const invited = await manage(gateway, "POST", "invitations", { email, role, team_ids }, key);
  if (invited.status !== 201) throw new Error(JSON.stringify(invited.body));
  const { id, url, email_status: mailed } = invited.body;
  return { email, token: url.split("#")[1], id, mailed };
}

/** Each attempt comes from another address, because attempts are counted by address. */
let addresses = 0;
export const anyAddress = () => ({
  "x-forwarded-for": `198.51.${Math.floor(++addresses / 250)}.${addresses % 250}`,
});

export interface SignedInPerson extends DashboardBrowser {
  readonly email: string;
  readonly state: Json;
}

/** Returns the browser of a session that a response has started. */
export async function browserOf(
  gateway: TestGateway,
  response: Response,
  email: string,
): Promise<SignedInPerson> {
  if (response.status !== 200) throw new Error(await response.text());
  const cookie = response.headers.get("set-cookie")!.split(";")[0]!;
  const state = (await response.json()) as Json;
  const csrfToken = state.csrf_token as string;
  return {
    ...{ email, state, cookie, csrfToken },
    call: (method, path, body, headers) =>
      askDashboard(gateway, method, path, body, { cookie, "x-csrf-token": csrfToken, ...headers }),
  };
}

/** Invites a person, who accepts with a new account. */
export async function joined(
  gateway: TestGateway,
  role: string,
  options: Parameters<typeof invite>[2] = {},
): Promise<SignedInPerson> {
  const { email, token } = await invite(gateway, role, options);
  const body = { token, name: `The ${role}`, password: PASSWORD };
  const response = await askDashboard(gateway, "POST", "invitation/accept", body, anyAddress());
  return browserOf(gateway, response, email);
}

/** Sets the password with the link that an operator made. This verifies the address of the account. */
export async function followPasswordLink(
  gateway: TestGateway,
  { url }: { readonly url: string },
): Promise<void> {
  const body = { token: url.split("#")[1], password: PASSWORD };
  const response = await askDashboard(gateway, "POST", "password/reset", body, anyAddress());
  if (response.status !== 200) throw new Error(await response.text());
}

export function signInWith(
  gateway: TestGateway,
  email: string,
  password = PASSWORD,
  code?: string,
): Promise<Response> {
  const body = { email, password, ...(code !== undefined && { code }) };
  return askDashboard(gateway, "POST", "session/password", body, anyAddress());
}
