import type { ChatType } from "../lib/alerts.ts";
import type { AlertMessage } from "./alert-text.ts";

/*
 * Bodies for incoming webhooks. Names come from users, so they must neither ping people nor become markup:
 *
 *   Slack    plain_text blocks are not parsed. The fallback text has &, < and > escaped, which also stops <!channel>.
 *   Teams    TextRun has no Markdown, and a mention needs an entity that is never sent.
 *   Discord  Markdown is escaped, allowed_mentions permits no mention, and flag 4 shows no previews of links.
 *
 * In all of them a zero-width space keeps @everyone and addresses of pages from being recognized.
 */

const RENDER: Readonly<Record<ChatType, (message: AlertMessage) => object>> = {
  slack: slackBody,
  teams: teamsBody,
  discord: discordBody,
};

/** Returns the JSON body of a message to a chat service. */
export function chatBody(type: ChatType, message: AlertMessage): string {
  return JSON.stringify(RENDER[type](message));
}

const LINK_TEXT = "Open the dashboard";
const ZERO_WIDTH_SPACE = "\u200B";

/** Returns the text without mentions and links. */
function unlinked(text: string): string {
  return text.replaceAll("@", `@${ZERO_WIDTH_SPACE}`).replaceAll("://", `:${ZERO_WIDTH_SPACE}//`);
}

/** Longest text of a block. Slack accepts 3,000 characters, and 150 in a header. */
const MAX_SLACK_CHARACTERS = 2_900;
const MAX_SLACK_HEADER_CHARACTERS = 150;

function slackBody({ title, lines, url }: AlertMessage): object {
  // Spaces against mentions count too. Slack rejects a longer header.
  const header = cut(unlinked(title), MAX_SLACK_HEADER_CHARACTERS);
  const body = joined(lines, MAX_SLACK_CHARACTERS, (line) => unlinked(`• ${line}`));
  return {
    text: slackEscaped(`${unlinked(title)}\n${body}`),
    blocks: [
      { type: "header", text: { type: "plain_text", text: header, emoji: false } },
      { type: "section", text: { type: "plain_text", text: body, emoji: false } },
      ...(url === undefined
        ? []
        : [
            {
              type: "context",
              elements: [{ type: "mrkdwn", text: `<${slackEscaped(url)}|${LINK_TEXT}>` }],
            },
          ]),
    ],
    unfurl_links: false,
    unfurl_media: false,
  };
}

function slackEscaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function teamsBody({ title, lines, url }: AlertMessage): object {
  const paragraph = (text: string, style: object = {}) => ({
    type: "RichTextBlock",
    inlines: [{ type: "TextRun", text: unlinked(text), ...style }],
  });
  return {
    type: "message",
    attachments: [
      {
        contentType: "application/vnd.microsoft.card.adaptive",
        contentUrl: null,
        content: {
          $schema: "http://adaptivecards.io/schemas/adaptive-card.json",
          type: "AdaptiveCard",
          version: "1.4",
          body: [
            paragraph(title, { weight: "Bolder", size: "Medium" }),
            ...lines.map((line) => paragraph(line)),
          ],
          ...(url !== undefined && {
            actions: [{ type: "Action.OpenUrl", title: LINK_TEXT, url }],
          }),
        },
      },
    ],
  };
}

/** Longest content that Discord accepts, less the title and the link. */
const MAX_DISCORD_CHARACTERS = 1_400;
/** Hides previews of links. */
const SUPPRESS_EMBEDS = 4;

function discordBody({ title, lines, url }: AlertMessage): object {
  const content = [
    `**${discordEscaped(cut(title, 150))}**`,
    joined(lines, MAX_DISCORD_CHARACTERS, (line) => `• ${discordEscaped(line)}`),
    ...(url === undefined ? [] : [`<${url}>`]),
  ];
  return {
    content: content.join("\n"),
    allowed_mentions: { parse: [] },
    flags: SUPPRESS_EMBEDS,
  };
}

function discordEscaped(text: string): string {
  return unlinked(text).replaceAll(/[\\*_~`|>#<[\]()]/g, "\\$&");
}

/** Returns the lines that fit, one below the other. */
function joined(
  lines: readonly string[],
  mostCharacters: number,
  render: (line: string) => string,
): string {
  let text = "";
  for (const [index, line] of lines.entries()) {
    const next = text === "" ? render(line) : `${text}\n${render(line)}`;
    if (next.length > mostCharacters) return `${text}\n… ${lines.length - index} more lines`.trim();
    text = next;
  }
  return text;
}

function cut(text: string, mostCharacters: number): string {
  const characters = [...text];
  return characters.length <= mostCharacters
    ? text
    : `${characters.slice(0, mostCharacters - 1).join("")}…`;
}
