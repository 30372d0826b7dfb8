import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Scope } from "../../../lib/api-key-record.ts";
import { mayRead } from "../rights.ts";
import { sectionName } from "../router.ts";
import { Link } from "./controls.tsx";
import { Empty, PageHead } from "./display.tsx";

export interface Section {
  /** Path segment under the page. Empty for the first section. */
  readonly name: string;
  readonly title: string;
  /** Scope of what the section shows. */
  readonly needs: Scope;
  readonly Section: ComponentType;
}

interface SectionsProps {
  /** Path segment of the page. */
  readonly page: string;
  readonly title: string;
  readonly sections: readonly Section[];
}

/** A page of sections, each with its own address. The address names the shown one. */
export function Sections({ page, title, sections }: SectionsProps) {
  const current = sections.find(({ name }) => name === sectionName.value)!;
  const list = useRef<HTMLElement>(null);
  useEffect(() => {
    // On narrow screens the list of sections scrolls.
    const link = list.current?.querySelector("[aria-current]");
    link?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [current]);
  return (
    <>
      <PageHead title={title} section={current.title} />
      <nav ref={list} class="tabs" aria-label={`${title} sections`}>
        {sections
          .filter(({ needs }) => mayRead(needs))
          .map((section) => (
            <Link
              key={section.name}
              page={section.name === "" ? page : `${page}/${section.name}`}
              isCurrent={section === current}
            >
              {section.title}
            </Link>
          ))}
      </nav>
      {mayRead(current.needs) ? (
        <current.Section />
      ) : (
        <Empty title="Your role does not show this section." />
      )}
    </>
  );
}
