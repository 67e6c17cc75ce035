// Runs before the first paint, so that a chosen theme does not flash.
try {
  const chosen = localStorage.getItem('backburner-theme')
  if (chosen) document.documentElement.dataset.theme = chosen
} catch {
  // Without storage the page follows the system.
}
// A module may be missing, or of another release, while a server is upgraded.
addEventListener('error', () => document.getElementById('unloaded')?.removeAttribute('hidden'), true)
