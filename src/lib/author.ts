/** Where a request came from. */
export interface Origin {
  /** Null where there is no connection. */
  readonly address: string | null;
  readonly user_agent: string | null;
  readonly request_id: string | null;
}

/** Who did an administrative act, and from where; the audit log keeps and shows it in this shape. */
export interface Author extends Origin {
  /** `subject`: who signed in through the identity provider. */
  readonly kind: "secret_key" | "management_key" | "operator" | "subject" | "cli";
  /** Of the key, or of the subject at its provider; of the command line the user of the operating system. */
  readonly id: string;
  readonly name: string;
  readonly via: "api" | "dashboard" | "cli";
  /** A subject with the authority of an operator. */
  readonly is_operator?: true;
}

/** Ids of subjects begin with it; no key's does. */
export const SUBJECT_PREFIX = "sso_";

/** Programs can send what they like: no more is kept of it. */
export const MAX_USER_AGENT_CHARACTERS = 256;
