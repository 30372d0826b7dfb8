import type { RelyingParty } from "../accounts/people/passkeys.ts";
import { isLoopbackHost, publicUrl, senderAddress } from "../http/request-headers.ts";
import { GatewayError } from "../lib/errors.ts";
import { addressOfHost, siteOf } from "../lib/public-address.ts";

/* Reads the origin and the session of a dashboard request from its headers. */

type RequestHeaders = Pick<Request, "headers">;

function otherSite(): GatewayError {
  return new GatewayError(
    "cross_origin",
    "The dashboard's API accepts requests from the dashboard's own pages only.",
  );
}

/** Throws 403 if a request states that it comes from another site. */
export function assertSameSite({ headers }: RequestHeaders, publicBase: string | undefined): void {
  const site = headers.get("sec-fetch-site");
  if (site !== null && site !== "same-origin") throw otherSite();
  const origin = headers.get("origin");
  if (site === null && origin !== null && !isDashboardOrigin(origin, headers, publicBase))
    throw otherSite();
}

/**
 * Returns true if the origin is the gateway's. Behind a proxy that changes the host, the URL that the
 * operator configured counts too.
 */
function isDashboardOrigin(
  origin: string,
  headers: Headers,
  publicBase: string | undefined,
): boolean {
  if (publicBase !== undefined && origin === new URL(publicBase).origin) return true;
  const host = headers.get("host");
  return host !== null && (origin === `http://${host}` || origin === `https://${host}`);
}

/** Throws 403 if a request does not state its origin. Every current browser states it. */
export function assertStatesOrigin({ headers }: RequestHeaders): void {
  if (!headers.has("sec-fetch-site") && !headers.has("origin")) throw otherSite();
}

/** Throws 403 unless a request without a session states that a dashboard page sent it. */
export function assertDashboardPage(request: RequestHeaders, publicBase: string | undefined): void {
  assertSameSite(request, publicBase);
  assertStatesOrigin(request);
}

/**
 * Returns the relying party of passkeys: the configured public address or, if there is none, the loopback host of the
 * request. Throws 400 for another host and for an IP address, for which browsers create no passkeys.
 */
export function relyingPartyOf(
  request: RequestHeaders,
  publicBase: string | undefined,
): RelyingParty {
  const { hostname, host, origin } = new URL(publicUrl("/", request, publicBase));
  const isHostAccepted = publicBase !== undefined || isLoopbackHost(request.headers);
  if (!isHostAccepted || addressOfHost(hostname) !== undefined) {
    const message =
      "Passkeys need the dashboard at the host name of GATEWAY_PUBLIC_URL or, without one, at localhost.";
    throw new GatewayError("invalid_header", message, { param: "host" });
  }
  // A proxy on the same machine may end TLS.
  const origins = publicBase === undefined ? [`http://${host}`, `https://${host}`] : [origin];
  return { id: hostname, origins };
}

/**
 * Returns the sender whose attempts are counted together: an IPv4 address, or the IPv6 network of one client.
 */
export function senderOf(
  { headers }: RequestHeaders,
  address: string,
  isTrustedProxy: (address: string) => boolean,
): string {
  const sender = senderAddress(headers, address, isTrustedProxy);
  return siteOf(sender) ?? sender;
}

const COOKIE_NAME = "gateway_session";
const TOKEN = /^[A-Za-z0-9_-]{43}$/;
/** Longest accepted cookie header. Browsers send shorter ones. */
const MAX_COOKIE_CHARACTERS = 8_192;

/** Lifetime of the session cookie, in seconds: the maximum age of a session. */
const COOKIE_SECONDS = 43_200;

/**
 * Returns true if the page was opened over plain http on the local machine. Browsers reject a `__Host-`
 * cookie over plain http. X-Forwarded-Proto counts from any sender, because it only makes the sender's own
 * cookie stricter.
 */
function isPlain({ headers }: RequestHeaders, publicBase: string | undefined): boolean {
  if (publicBase?.startsWith("https:") === true) return false;
  return isLoopbackHost(headers) && headers.get("x-forwarded-proto") !== "https";
}

/**
 * Returns the token in the session cookie. Returns undefined if the request has two such cookies. All ports
 * of a host share cookies, so over plain http another server of the machine can set one. With a longer path
 * it would come first and could belong to another session.
 */
export function cookieToken(
  request: RequestHeaders,
  publicBase: string | undefined,
): string | undefined {
  return cookieValue(request, cookieName(isPlain(request, publicBase)));
}

function cookieValue(request: RequestHeaders, name: string): string | undefined {
  const cookies = request.headers.get("cookie");
  if (cookies === null || cookies.length > MAX_COOKIE_CHARACTERS) return undefined;
  const values = cookies.split(";").flatMap((cookie) => {
    const [key, value = ""] = cookie.trim().split("=", 2);
    return key === name ? [value] : [];
  });
  return values.length === 1 && TOKEN.test(values[0]!) ? values[0] : undefined;
}

/**
 * Returns true if the cookie can be Secure. A proxy that ends TLS and changes the host can omit
 * X-Forwarded-Proto. Then the browser's Origin header shows https. The cookie keeps its name, because GET
 * requests have no Origin header.
 */
function isSecure(request: RequestHeaders, publicBase: string | undefined): boolean {
  const origin = request.headers.get("origin");
  return !isPlain(request, publicBase) || origin?.startsWith("https:") === true;
}

/** Returns the Set-Cookie header of a session. An empty token deletes the cookie. */
export function sessionCookie(
  request: RequestHeaders,
  publicBase: string | undefined,
  token: string,
): string {
  const age = token === "" ? 0 : COOKIE_SECONDS;
  const secure = isSecure(request, publicBase) ? " Secure;" : "";
  return `${cookieName(isPlain(request, publicBase))}=${token}; Path=/; Max-Age=${age};${secure} HttpOnly; SameSite=Strict`;
}

function cookieName(plain: boolean, name = COOKIE_NAME): string {
  return plain ? name : `__Host-${name}`;
}

const FLOW_COOKIE_NAME = "gateway_sign_on";
/** Lifetime of the sign-in cookie, in seconds. Users need time to find their second factor. */
const FLOW_SECONDS = 600;

/** Returns the secret of the sign-in through the identity provider that this browser has started. */
export function flowSecret(
  request: RequestHeaders,
  publicBase: string | undefined,
): string | undefined {
  return cookieValue(request, cookieName(isPlain(request, publicBase), FLOW_COOKIE_NAME));
}

/**
 * Returns the Set-Cookie header of a sign-in. SameSite is Lax, because the browser returns from another site.
 */
export function flowCookie(
  request: RequestHeaders,
  publicBase: string | undefined,
  secret: string,
  age = FLOW_SECONDS,
): string {
  const plain = isPlain(request, publicBase);
  const name = cookieName(plain, FLOW_COOKIE_NAME);
  const secure = plain ? "" : " Secure;";
  return `${name}=${secret}; Path=/; Max-Age=${age};${secure} HttpOnly; SameSite=Lax`;
}

export function expiredFlow(request: RequestHeaders, publicBase: string | undefined): string {
  return flowCookie(request, publicBase, "", 0);
}
