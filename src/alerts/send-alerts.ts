import type { Message } from "../accounts/people/mail.ts";
import type { ChatType } from "../lib/alerts.ts";
import type { EgressSend } from "../platform/egress/client.ts";
import { failureText } from "../webhooks/send-event.ts";
import type { AlertMessage } from "./alert-text.ts";
import { chatBody } from "./chat-message.ts";

/** The receiver of a message. */
export type AlertReceiver =
  | { readonly type: ChatType; readonly url: string }
  | { readonly type: "email"; readonly address: string };

/** The result of an attempt. */
export interface SentAlert {
  /** Null if the receiver accepted the message. It contains no secret and no address. */
  readonly error: string | null;
  /** HTTP status of the answer. Null if there was none, and for mail. */
  readonly statusCode: number | null;
  readonly latencyMs: number;
  /**
   * True if the receiver failed. False for a success, and if this gateway's mail server failed, which is no fault of
   * the receiver.
   */
  readonly isReceiverFault: boolean;
}

/** Sends one message. It never rejects: the result contains the error. */
export type SendAlert = (receiver: AlertReceiver, message: AlertMessage) => Promise<SentAlert>;

interface SendAlertDependencies {
  readonly send: EgressSend;
  readonly mail: { send(message: Message): Promise<void> };
  /** Domain of the ids of messages. */
  readonly publicUrl: string | undefined;
}

const ATTEMPT_TIMEOUT_MS = 10_000;

export function createSendAlert(dependencies: SendAlertDependencies): SendAlert {
  return async (receiver, message) => {
    const startedMs = performance.now();
    const result =
      receiver.type === "email"
        ? await sendMail(dependencies, receiver.address, message)
        : await sendChat(dependencies, receiver, message);
    return { ...result, latencyMs: Math.round(performance.now() - startedMs) };
  };
}

type Outcome = Omit<SentAlert, "latencyMs">;

async function sendChat(
  { send }: SendAlertDependencies,
  { type, url }: { readonly type: ChatType; readonly url: string },
  message: AlertMessage,
): Promise<Outcome> {
  try {
    const { status } = await send({
      method: "POST",
      url,
      body: chatBody(type, message),
      timeoutMs: ATTEMPT_TIMEOUT_MS,
      headers: { "content-type": "application/json", "user-agent": "model-gateway-alerts" },
    });
    const isSent = status >= 200 && status <= 299;
    const error = isSent ? null : `the receiver answered ${status}`;
    return { error, statusCode: status, isReceiverFault: !isSent };
  } catch (failure) {
    return { error: failureText(failure), statusCode: null, isReceiverFault: true };
  }
}

async function sendMail(
  { mail, publicUrl }: SendAlertDependencies,
  address: string,
  message: AlertMessage,
): Promise<Outcome> {
  const domain = URL.parse(publicUrl ?? "")?.hostname ?? "localhost";
  try {
    await mail.send({
      to: address,
      subject: message.title,
      text: mailText(message),
      html: mailHtml(message),
      messageId: `<${message.id}@${domain}>`,
    });
    return { error: null, statusCode: null, isReceiverFault: false };
  } catch (failure) {
    const { code, responseCode } = failure as { code?: unknown; responseCode?: unknown };
    const isRejected =
      typeof responseCode === "number" &&
      responseCode >= 500 &&
      responseCode <= 599 &&
      code === "EENVELOPE";
    return {
      error: isRejected
        ? `the mail server rejected the address (${responseCode})`
        : "the mail server did not accept the message",
      statusCode: null,
      isReceiverFault: isRejected,
    };
  }
}

const REASON = "You get this message because you chose it on the page Account of the dashboard.";

function mailText({ lines, url }: AlertMessage): string {
  const parts = [...lines, ...(url === undefined ? [] : [`Dashboard: ${url}`]), REASON];
  return `${parts.join("\n\n")}\n`;
}

function mailHtml({ title, lines, url }: AlertMessage): string {
  const link =
    url === undefined ? "" : `<p><a href="${htmlEscaped(url)}">Open the dashboard</a></p>`;
  const list = lines.map((line) => `<li>${htmlEscaped(line)}</li>`).join("");
  return `<!doctype html><html lang="en"><body><h3>${htmlEscaped(title)}</h3><ul>${list}</ul>${link}<p><small>${REASON}</small></p></body></html>`;
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

function htmlEscaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => ENTITIES[character]!);
}
