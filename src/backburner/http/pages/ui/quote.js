// What a job would cost, and when it would start and end.
import { html, Ago, bounded, money, number } from './core.js'
import { inline } from './parts.js'

export const Quote = ({ quote }) => html`<div class="notice" role="status"><dl class="facts quote">
  <dt>Cost</dt><dd>${quote.cost_usd === null ? 'not known' : `at most ${money(quote.cost_usd)}`}${quote.model ? ` with ${bounded(quote.model, 60)}` : ''}</dd>
  <dt>Tokens</dt><dd>${quote.tokens === null ? 'not known' : `${number(quote.tokens)} (${quote.tokens_basis})`}</dd>
  <dt>Start</dt><dd>${quote.paused ? html`<span class="bad-text">the queue is paused</span>` : quote.start ? html`<${Ago} at=${quote.start.p50} />` : quote.slots ? 'not known yet' : html`<span class="bad-text">no worker serves its queue</span>`}, ${number(quote.jobs_ahead)} ${quote.jobs_ahead === 1 ? 'job' : 'jobs'} ahead</dd>
  <dt>End</dt><dd>${quote.finish ? html`<${Ago} at=${quote.finish.p50} /> (median), <${Ago} at=${quote.finish.p90} /> (90th percentile)` : 'not known yet'}</dd>
  ${quote.budget && html`<dt>Budget</dt><dd class=${quote.budget.admits ? '' : 'bad-text'}>${quote.budget.admits ? 'allows this job' : 'refuses this job now'}: ${inline(String(quote.budget.left_after), 30)} of ${inline(String(quote.budget.limit), 30)} ${quote.budget.unit === 'money' ? 'dollars' : 'tokens'} would be left</dd>`}
</dl></div>`
