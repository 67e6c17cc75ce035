"""Finds text whose contrast with its background is below WCAG AA (4.5:1)."""

TOO_FAINT = """(() => {
  const numbers = text => text.match(/[\\d.]+/g).map(Number)
  const part = value => (value /= 255) <= .04045
    ? value / 12.92 : ((value + .055) / 1.055) ** 2.4
  const light = ([r, g, b]) => .2126 * part(r) + .7152 * part(g) + .0722 * part(b)
  const behind = node => {
    for (; node; node = node.parentElement) {
      const found = numbers(getComputedStyle(node).backgroundColor)
      if (found.length === 3 || found[3] === 1) return found
    }
    return [255, 255, 255]
  }
  const faint = []
  for (const node of document.body.querySelectorAll('*')) {
    const texts = [...node.childNodes].filter(child => child.nodeType === 3)
    if (!texts.some(text => text.data.trim()) || !node.checkVisibility()) continue
    const pair = [numbers(getComputedStyle(node).color), behind(node)].map(light)
    const ratio = (Math.max(...pair) + .05) / (Math.min(...pair) + .05)
    if (ratio < 4.5) faint.push([node.textContent.trim(), ratio])
  }
  return faint
})()"""
