/** The client of a request. */
export interface Origin {
  /** IP address. Null if there is no connection, as on the command line. */
  readonly address: string | null;
  readonly user_agent: string | null;
  readonly request_id: string | null;
}

/** The author of an administrative act. The audit log stores and returns this shape. */
export interface Author extends Origin {
  /** `subject`: a person signed in through the identity provider. `person`: a person with an account. */
  readonly kind:
    | "secret_key"
    | "management_key"
    | "operator"
    | "subject"
    | "person"
    | "scim_token"
    | "cli";
  /**
   * Id of the key, or of the subject at its identity provider; on the command line, the user of the operating
   * system.
   */
  readonly id: string;
  readonly name: string;
  readonly via: "api" | "dashboard" | "cli";
  /** Set for a subject with the rights of an operator. */
  readonly is_operator?: true;
}

/** The prefix of subject ids. No key id has it. */
export const SUBJECT_PREFIX = "sso_";

/** Longest User-Agent that is stored. Longer ones are cut. */
export const MAX_USER_AGENT_CHARACTERS = 256;
