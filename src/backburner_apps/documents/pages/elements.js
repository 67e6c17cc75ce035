// Builds elements and shows notices. Text is set as text, never as HTML.

export const byId = id => document.getElementById(id)

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties)
  made.append(...children.filter(child => child !== null && child !== undefined))
  return made
}

const NOTICE_SECONDS = 8
const MOST_NOTICES = 3

// Shows a notice; screen readers announce it. Errors stay until they are dismissed.
export function notify(text, kind = "info") {
  const dismiss = element("button", {className: "quiet", type: "button", ariaLabel: "Dismiss"}, "×")
  const notice = element("div", {className: `notice ${kind}`}, element("p", {textContent: text}), dismiss)
  dismiss.onclick = () => notice.remove()
  byId("notices").append(notice)
  if (byId("notices").children.length > MOST_NOTICES) byId("notices").firstChild.remove()
  if (kind !== "bad") setTimeout(() => notice.remove(), NOTICE_SECONDS * 1000)
}

// Returns an error without the code that it may begin with, such as `CORRUPT_FILE: `.
export const withoutCode = text => text.replace(/^[A-Z][A-Z_]+: /, "")

const UNITS = ["bytes", "KB", "MB", "GB"]

export function sizeOf(bytes) {
  const unit = bytes ? Math.min(Math.floor(Math.log10(bytes) / 3), UNITS.length - 1) : 0
  const value = bytes / 1000 ** unit
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`
}

export const timeOf = text =>
  new Date(text).toLocaleString(undefined, {dateStyle: "medium", timeStyle: "short"})
