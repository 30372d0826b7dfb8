import { isLoopbackHost, senderAddress } from "../http/request-headers.ts";
import { GatewayError } from "../lib/errors.ts";
import { siteOf } from "../lib/public-address.ts";

/*
 * What a browser says of a request of the dashboard: where it comes from, and which session it has.
 */

type Asked = Pick<Request, "headers">;

function otherSite(): GatewayError {
  return new GatewayError(
    "cross_origin",
    "The dashboard's API answers requests of the dashboard's own pages alone.",
  );
}

/** Throws 403 where a request states that it comes from elsewhere. */
export function assertNotFromElsewhere({ headers }: Asked, publicBase: string | undefined): void {
  const site = headers.get("sec-fetch-site");
  if (site !== null && site !== "same-origin") throw otherSite();
  const origin = headers.get("origin");
  if (site === null && origin !== null && !isOwn(origin, headers, publicBase)) throw otherSite();
}

/** Behind a proxy that changes the host, the address that the operator named is the own one too. */
function isOwn(origin: string, headers: Headers, publicBase: string | undefined): boolean {
  if (publicBase !== undefined && origin === new URL(publicBase).origin) return true;
  const host = headers.get("host");
  return host !== null && (origin === `http://${host}` || origin === `https://${host}`);
}

/** Throws 403 where a request states nothing of where it comes from, as no current browser does. */
export function assertStatesOrigin({ headers }: Asked): void {
  if (!headers.has("sec-fetch-site") && !headers.has("origin")) throw otherSite();
}

/** Throws 403 unless a request without a session states that one of the dashboard's own pages sent it. */
export function assertOwnPage(request: Asked, publicBase: string | undefined): void {
  assertNotFromElsewhere(request, publicBase);
  assertStatesOrigin(request);
}

/** Whose attempts are counted together: an address, or of IPv6 the network that one client has. */
export function senderOf(
  { headers }: Asked,
  address: string,
  isTrustedProxy: (address: string) => boolean,
): string {
  const sender = senderAddress(headers, address, isTrustedProxy);
  return siteOf(sender) ?? sender;
}

const COOKIE_NAME = "gateway_session";
const TOKEN = /^[A-Za-z0-9_-]{43}$/;
/** Longer than what browsers send. */
const MAX_COOKIE_CHARACTERS = 8_192;

/** As long as a session lasts at most. */
const COOKIE_SECONDS = 43_200;

/**
 * Browsers refuse a `__Host-` cookie that comes over plain http, which is how a gateway on one's own machine
 * is opened. Any sender's X-Forwarded-Proto counts: it makes that sender's own cookie stricter.
 */
function isPlain({ headers }: Asked, publicBase: string | undefined): boolean {
  if (publicBase?.startsWith("https:") === true) return false;
  return isLoopbackHost(headers) && headers.get("x-forwarded-proto") !== "https";
}

/**
 * None where there are two: cookies are shared by all ports of a host, so over plain http another server of the
 * machine can set one for a longer path, which comes first and would be another's session.
 */
export function cookieToken(request: Asked, publicBase: string | undefined): string | undefined {
  return cookieValue(request, cookieName(isPlain(request, publicBase)));
}

function cookieValue(request: Asked, name: string): string | undefined {
  const cookies = request.headers.get("cookie");
  if (cookies === null || cookies.length > MAX_COOKIE_CHARACTERS) return undefined;
  const values = cookies.split(";").flatMap((cookie) => {
    const [key, value = ""] = cookie.trim().split("=", 2);
    return key === name ? [value] : [];
  });
  return values.length === 1 && TOKEN.test(values[0]!) ? values[0] : undefined;
}

/**
 * Where a proxy that ends TLS changes the host to this machine's and says nothing of it, the browser's origin
 * does. The name of the cookie stays: what is only read states no origin.
 */
function isSecure(request: Asked, publicBase: string | undefined): boolean {
  const origin = request.headers.get("origin");
  return !isPlain(request, publicBase) || origin?.startsWith("https:") === true;
}

/** The Set-Cookie header of a session; an empty token ends it. */
export function sessionCookie(
  request: Asked,
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
/** People may have to look for their second factor. */
const FLOW_SECONDS = 600;

/** Of a sign-in through the identity provider that this browser has begun. */
export function flowSecret(request: Asked, publicBase: string | undefined): string | undefined {
  return cookieValue(request, cookieName(isPlain(request, publicBase), FLOW_COOKIE_NAME));
}

/** Lax: the browser comes back from another site with it. */
export function flowCookie(
  request: Asked,
  publicBase: string | undefined,
  secret: string,
  age = FLOW_SECONDS,
): string {
  const plain = isPlain(request, publicBase);
  const name = cookieName(plain, FLOW_COOKIE_NAME);
  const secure = plain ? "" : " Secure;";
  return `${name}=${secret}; Path=/; Max-Age=${age};${secure} HttpOnly; SameSite=Lax`;
}

export function expiredFlow(request: Asked, publicBase: string | undefined): string {
  return flowCookie(request, publicBase, "", 0);
}
