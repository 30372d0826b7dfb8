import { signal } from "@preact/signals";
import type { OperatorRole, Role } from "../../lib/roles.ts";
import { dashboardUrl } from "./router.ts";

/** The person of a session, with the role in it. */
export interface SessionPerson {
  readonly id: string;
  readonly email: string;
  /** Null for a session as operator. */
  readonly member_id: string | null;
  readonly role: Role | OperatorRole;
  /** Organizations, and the gateway for operators, for which the person can act. */
  readonly holders: readonly { readonly id: string; readonly name: string }[];
  /** Teams of the member. */
  readonly teams: readonly { readonly id: string; readonly name: string }[];
}

/** The signed-in session. */
export interface Session {
  readonly kind: "organization" | "operator";
  readonly key: { readonly id: string; readonly name: string | null };
  /** Null if the session was started without an account. */
  readonly person: SessionPerson | null;
  /** The organization that an operator views, read-only. Null in other sessions. */
  readonly viewing: { readonly id: string; readonly name: string } | null;
  readonly csrf_token: string;
  /** The end of the session if it is not used until then. */
  readonly ends_at: string;
  /** The end of the session however it is used. */
  readonly expires_at: string;
  /** Whether the test processor handles payments. */
  readonly test_payments: boolean;
  /** The version of the gateway, for the foot of the page. */
  readonly version: string;
}

/** The session. Undefined until it is known, null if there is none. */
export const session = signal<Session | null | undefined>(undefined);
/** Reason for the end of a session other than "Sign out". */
export const signedOutBecause = signal<string | undefined>(undefined);

/** Details of a failed payment. */
interface PaymentFault {
  readonly declineCode?: string | undefined;
  /** URL at which the cardholder authenticates or pays. */
  readonly page?: string | undefined;
}

/** An object that needs the one that was to be deleted. */
export interface Use {
  readonly type: string;
  readonly id: string;
}

export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly param: string | null;
  readonly payment: PaymentFault;
  readonly usedBy: readonly Use[];

  constructor(
    status: number,
    code: string,
    message: string,
    param: string | null,
    payment: PaymentFault = {},
    usedBy: readonly Use[] = [],
  ) {
    super(message);
    this.usedBy = usedBy;
    this.payment = payment;
    this.status = status;
    this.code = code;
    this.param = param;
  }
}

type Method = "GET" | "POST" | "PATCH" | "DELETE";

interface CallOptions {
  readonly body?: unknown;
  readonly signal?: AbortSignal;
  /** True for automatic requests, which do not keep the session open. */
  readonly isUnattended?: boolean;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Codes of 401 that report wrong or missing credentials, which end no session. */
const CREDENTIAL_FAULTS: readonly string[] = ["invalid_credentials", "second_factor_required"];

/** Sends a request to the dashboard's API with the session. Throws ApiError. */
export async function send(
  method: Method,
  path: string,
  options: CallOptions = {},
): Promise<Response> {
  const headers: Record<string, string> = { accept: "application/json", ...options.headers };
  const sender = session.value;
  const token = sender?.csrf_token;
  if (token !== undefined) headers["x-csrf-token"] = token;
  if (options.isUnattended) headers["x-dashboard-unattended"] = "1";
  if (options.body !== undefined) headers["content-type"] = "application/json";
  const response = await fetch(new URL(`api/${path}`, dashboardUrl), {
    method,
    headers,
    signal: options.signal,
    body: options.body === undefined ? undefined : JSON.stringify(options.body),
  }).catch((error: unknown) => {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "The gateway cannot be reached.", null);
  });
  if (response.ok) return response;
  const error = await errorOf(response);
  // An answer to the previous session, before a switch, does not end this one.
  const isEnded = error.status === 401 && session.value === sender;
  if (isEnded && !CREDENTIAL_FAULTS.includes(error.code)) {
    endSession("Your session has ended. Sign in again.");
  }
  throw error;
}

export async function call<Answer>(
  method: Method,
  path: string,
  options: CallOptions = {},
): Promise<Answer> {
  return (await send(method, path, options)).json() as Promise<Answer>;
}

export async function errorOf(response: Response): Promise<ApiError> {
  const envelope = (await response.json().catch(() => ({}))) as {
    error?: {
      message?: string;
      code?: string;
      param?: string | null;
      decline_code?: string;
      authentication_url?: string;
      used_by?: readonly Use[];
    };
  };
  const { message, code, param, decline_code: declineCode, used_by: usedBy } = envelope.error ?? {};
  const payment = { declineCode, page: envelope.error?.authentication_url };
  const text = message ?? `The gateway answered with status ${response.status}.`;
  return new ApiError(response.status, code ?? "unknown", text, param ?? null, payment, usedBy);
}

export function endSession(because?: string): void {
  if (session.value) signedOutBecause.value = because;
  session.value = null;
}

/** Restores an open session, for example after a reload. */
export async function restoreSession(): Promise<void> {
  try {
    session.value = await call<Session>("GET", "session");
  } catch (error) {
    session.value = null;
    if (!(error instanceof ApiError) || error.status !== 401)
      signedOutBecause.value = String(error);
  }
}

/**
 * Starts a session with a call that answers with one, such as a sign-in. Throws ApiError if the gateway rejects the
 * call.
 */
export async function startSession(
  path: string,
  body: unknown,
  method: "POST" | "DELETE" = "POST",
): Promise<void> {
  const started = await call<Session>(method, path, { body });
  signedOutBecause.value = undefined;
  session.value = started;
}

/** Signs out. If the gateway cannot end the session, the page says so: the browser still has the cookie. */
export async function signOut(): Promise<void> {
  const error: unknown = await send("DELETE", "session").then(
    () => undefined,
    (failure) => failure,
  );
  const isOpen = error !== undefined && !(error instanceof ApiError && error.status === 401);
  endSession(
    isOpen
      ? "The gateway could not end your session. Reload this page, and sign out again."
      : undefined,
  );
}
