import { createTransport, type Transporter } from "nodemailer";
import type { Invitation } from "../../../db/queries/members.ts";
import type { Person } from "../../../db/queries/people.ts";
import type { MailSettings } from "../../platform/config/settings.ts";

const TIMEOUT_MS = 10_000;

export interface Message {
  readonly to: string;
  readonly subject: string;
  readonly text: string;
  readonly html?: string;
  /** Mail servers and programs drop a second message with the same id. */
  readonly messageId?: string;
}

/** Outcomes of a message: the mail server accepted it or not, or none is configured. */
export const MAIL_OUTCOMES = ["sent", "failed", "not_configured"] as const;
type MailOutcome = (typeof MAIL_OUTCOMES)[number];

/** Sends mail to people. Without settings it sends nothing. */
export class PeopleMail {
  readonly #transport: Transporter | undefined;
  readonly #from: string | undefined;
  readonly #onError: (error: unknown) => void;

  constructor(settings: MailSettings | undefined, onError: (error: unknown) => void) {
    this.#onError = onError;
    this.#from = settings?.from;
    this.#transport =
      settings &&
      createTransport(settings.url, {
        ...{
          connectionTimeout: TIMEOUT_MS,
          greetingTimeout: TIMEOUT_MS,
          socketTimeout: TIMEOUT_MS,
        },
      } as never);
  }

  get isConfigured(): boolean {
    return this.#transport !== undefined;
  }

  /** Mails the link of an invitation. Returns the outcome. Never rejects. */
  sendInvitation({ email, role }: Invitation, url: string): Promise<MailOutcome> {
    return this.#send(email, "Invitation to the model gateway", [
      `You are invited to the model gateway as ${role}.`,
      `Accept the invitation within 7 days: ${url}`,
      "The link works once. If you do not expect this message, ignore it.",
    ]);
  }

  /** Mails a link for a new password, if the address has an account. Returns immediately. Never throws. */
  sendPasswordLink(
    make: () => Promise<{ readonly person: Person; readonly token: string } | undefined>,
    urlOf: (token: string) => string,
  ): void {
    void make()
      .then(async (link) => {
        if (link === undefined) return;
        await this.#send(link.person.email, "New password for the model gateway", [
          `Set a new password within an hour: ${urlOf(link.token)}`,
          "The link works once. If you did not ask for it, ignore this message.",
        ]);
      })
      .catch(this.#onError);
  }

  /** Sends a message. Rejects if the server does not accept it, or if none is configured. */
  async send(message: Message): Promise<void> {
    if (this.#transport === undefined) throw new Error("no mail server is configured");
    await this.#transport.sendMail({ ...message, from: this.#from });
  }

  async #send(to: string, subject: string, lines: readonly string[]): Promise<MailOutcome> {
    if (this.#transport === undefined) return "not_configured";
    try {
      await this.send({ to, subject, text: `${lines.join("\n\n")}\n` });
      return "sent";
    } catch (error) {
      this.#onError(error);
      return "failed";
    }
  }
}
