  // -- searches -----------------------------------------------------------------------------------------------------

  function short_name(axis_name) { return axis_name.replace(/^.*\./, ''); }
  function layout_said(layout, names) {
    return names.map(function (name) { return row(escaped(short_name(name)), escaped(layout[name])); }).join('');
  }
  function plan_document(data) {
    var plan = data.record, capacity = plan.capacity_bytes;
    var telling = plan.axes.filter(function (a) { return a.values.length > 1; }).map(function (a) { return a.name; });
    function found(list) {
      return list.map(function (f) {
        return {x: +(f.peak_device_upper_bytes / 1073741824).toFixed(3), y: +f.tokens_per_s_per_device.toFixed(1),
                name: '#' + f.candidate,
                said: '<b>#' + f.candidate + '</b>' + row('tokens/s', thousands(f.tokens_per_s_per_device)) +
                      row('step', time(1e9 * f.step_time_s)) + row('up to', gib(f.peak_device_upper_bytes)) +
                      row('allocated', gib(f.peak_allocated_bytes)) + layout_said(f.layout, telling)};
      });
    }
    var misses = plan.near_misses.filter(function (m) { return capacity && m.tokens_per_s_per_device !== null; });
    var lists = [
      {name: 'front: less memory only for less throughput', colour: 'accent', line: true, size: 8, points: found(plan.front)},
      {name: 'best', colour: '#2a8f83', size: 13, points: found(plan.best)},
      {name: 'near misses', colour: 'no', symbol: 'diamond', points: misses.map(function (m) {
        return {x: +((capacity + m.lacks_bytes) / 1073741824).toFixed(3), y: +m.tokens_per_s_per_device.toFixed(1),
                name: '#' + m.candidate,
                said: '<b>#' + m.candidate + ' does not fit</b>' +
                      (m.lacks_bytes > 0 ? row('the fullest device lacks', (m.exact ? '' : 'at least ') + gib(m.lacks_bytes)) : '') +
                      (m.host_lacks_bytes > 0 ? row('the fullest host lacks', gib(m.host_lacks_bytes)) : '') +
                      (m.straddles ? row('fits at central estimates', 'yes') : '') +
                      row('tokens/s', (m.exact ? '' : 'at most ') + thousands(m.tokens_per_s_per_device)) +
                      layout_said(m.layout, telling)};
      })}
    ].filter(function (list) { return list.points.length; });
    var fates = [
      ['bounds of memory say that it does not fit', plan.tiers.bounded_rejected],
      ['the emulated allocator says that it does not fit', plan.tiers.allocator_rejected],
      ['beaten in memory and throughput both', plan.tiers.beaten], ['fits, and ran on the simulated clock', plan.tiers.timed],
      ['cannot be judged', plan.tiers.failed]
    ].filter(function (fate) { return fate[1] > 0; });
    var dropped = plan.dropped.map(function (d) { return [d.reason, d.combinations]; });
    var on_front = {}, among_best = {};
    plan.front.forEach(function (f) { on_front[f.candidate] = true; });
    plan.best.forEach(function (f) { among_best[f.candidate] = true; });
    function found_table(id, title, list) {
      return {id: id, title: title,
              head: ['layout', 'tokens/s', 'step', 'device up to', 'allocated', 'on the front'].concat(telling.map(short_name)),
              rows: list.map(function (f) {
                return ['#' + f.candidate, thousands(f.tokens_per_s_per_device), time(1e9 * f.step_time_s),
                        gib_cell(f.peak_device_upper_bytes), gib_cell(f.peak_allocated_bytes), on_front[f.candidate] ? 'yes' : '']
                    .concat(telling.map(function (name) { return f.layout[name]; }));
              })};
    }
    var other_front = plan.front.filter(function (f) { return !among_best[f.candidate]; });
    var sections = [];
    if (lists.length)
      sections.push({title: 'Memory and throughput', figures: [scatter_figure(
        'pareto', 'Candidates', 'Upper ends of the fullest rank’s memory. Near misses stand at the capacity and what they ' +
                                'lack; point at them to see why not.',
        lists, ['GiB of the fullest device, up to', 'tokens/s per device'], capacity)]});
    if (plan.best.length)
      sections.push({title: 'Layouts', tables: [found_table('best', 'The best', plan.best)].concat(
        other_front.length ? [found_table('front', 'Others on the front: less memory for less throughput', other_front)] : [])});
    if (plan.near_misses.length)
      sections.push({title: 'Near misses', tables: [{
        id: 'near-misses', title: 'What lacks least', head: ['layout', 'lacks', 'tokens/s'].concat(telling.map(short_name)),
        rows: plan.near_misses.map(function (m) {
          return ['#' + m.candidate, (m.exact ? '' : 'at least ') + gib(Math.max(m.lacks_bytes, m.host_lacks_bytes)),
                  m.tokens_per_s_per_device === null ? 'not bounded'
                                                     : (m.exact ? '' : 'at most ') + thousands(m.tokens_per_s_per_device)]
              .concat(telling.map(function (name) { return m.layout[name]; }));
        })
      }]});
    sections.push({title: 'Why the others fall', figures: [bars_figure('fates', 'What became of candidates', fates)],
                   tables: dropped.length ? [{id: 'dropped', title: 'Combinations that are no candidates',
                                              head: ['reason', 'combinations'], rows: dropped}] : []});
    var best = plan.best[0];
    return {
      figures_of_merit: (best ? [[thousands(best.tokens_per_s_per_device), 'tokens/s per device'],
                                 [time(1e9 * best.step_time_s), 'a step'],
                                 [gib(best.peak_device_upper_bytes), 'up to' + (capacity ? ', of ' + gib(capacity) : '')]] : [])
                            .concat([[thousands(plan.candidates), 'candidates'], [thousands(plan.combinations), 'combinations']]),
      sections: sections, assumptions: plan.assumptions, question: space_words(plan),
      next: best ? ['tidemark plan FILE --write-scenarios FOLDER: the best as files that predict takes',
                    'tidemark report of the best one: its memory over the step, and the range of its time']
                 : ['tidemark advise of what lacks least: the smallest changes that make it fit',
                    'more GPUs, a shorter sequence, or tidemark plan --with offload']
    };
  }
  function bars_figure(id, title, pairs, unit) {
    return {
      id: id, title: title, caption: '', height: 50 + 30 * Math.max(1, pairs.length),
      option: function (theme) {
        return {
          animation: false,
          grid: {left: 8, right: 90, top: 6, bottom: 24, containLabel: true},
          xAxis: axis(theme, {type: 'value', name: unit || '', minInterval: 1}),
          yAxis: axis(theme, {type: 'category', inverse: true, data: pairs.map(function (p) { return p[0]; }),
                              axisLabel: {color: theme.ink, fontSize: 12}}),
          tooltip: tooltip(theme, {}),
          series: [{type: 'bar', color: '#5b8db8', barMaxWidth: 16, animation: false,
                    data: pairs.map(function (p) { return p[1]; }),
                    label: {show: true, position: 'right', color: theme.ink, formatter: function (bar) { return thousands(bar.value); }}}]
        };
      },
      table: function () { return {head: [title, 'number'], rows: pairs}; }
    };
  }

  function capacity_document(data) {
    var study = data.record, limits = study.limits, by = study.by, largest = short_name(study.largest);
    function by_name(limit) { return by ? String(limit[by]) : 'all'; }
    function frontier(id, title, unit, value, colour) {
      return {
        id: id, title: title, caption: 'At the largest value that fits, the best of all that the study tries.' +
                 (limits.some(function (l) { return l.list_ended; }) ?
                    ' Where the list of values ended first, larger ones were not tried: no limit is known.' : ''),
        height: 320,
        option: function (theme) {
          var values = limits.map(value), numbers = values.filter(function (v) { return v > 0; });
          var wide = numbers.length && Math.max.apply(null, numbers) > 30 * Math.min.apply(null, numbers);
          return {
            animation: false,
            grid: {left: 70, right: 20, top: 30, bottom: 56},
            xAxis: axis(theme, {type: 'category', data: limits.map(by_name), name: by ? short_name(by) : '', nameLocation: 'middle',
                                nameGap: 30, axisLabel: {color: theme.ink, interval: 0, overflow: 'truncate', width: 180}}),
            yAxis: axis(theme, {type: wide ? 'log' : 'value', name: unit, nameLocation: 'middle', nameGap: 54,
                                minInterval: numbers.every(function (v) { return v === Math.floor(v); }) ? 1 : 0}),
            tooltip: tooltip(theme, {trigger: 'axis', formatter: function (shown) {
              var l = limits[shown[0].dataIndex], out = '<b>' + escaped(by_name(l)) + '</b>';
              out += row(largest, l.largest === null ? 'none' : escaped(l.largest));
              if (l.candidate !== null)
                out += row('tokens/s', thousands(l.tokens_per_s_per_device)) + row('up to', gib(l.peak_device_upper_bytes)) +
                       row('with', escaped(l['with']));
              if (l.next_lacks_bytes !== null) out += row('the next larger lacks', gib(l.next_lacks_bytes));
              if (l.list_ended) out += row('larger ones', 'were not tried');
              return out;
            }}),
            series: [{type: 'bar', color: colour, barMaxWidth: 60, animation: false, data: values,
                      label: {show: true, position: 'top', color: theme.ink,
                              formatter: function (bar) {
                                return bar.value > 0 ? thousands(bar.value) + (limits[bar.dataIndex].list_ended && id === 'frontier' ? ' or more' : '')
                                                     : 'none';
                              }}}]
          };
        },
        table: function () { return {head: [by || 'all', unit], rows: limits.map(function (l) { return [by_name(l), value(l)]; })}; }
      };
    }
    // What is no number counts by its place among the values.
    var texts = study.axes.filter(function (a) { return a.name === study.largest; })[0].values;
    var numeric = texts.every(function (text) { return !isNaN(parseFloat(text)); });
    var figures = [frontier('frontier', 'The largest ' + largest, numeric ? largest : largest + ' (place among its values)',
                            function (l) { return l.largest === null ? 0 : numeric ? parseFloat(l.largest) : texts.indexOf(l.largest) + 1; },
                            '#2f5d8a'),
                   frontier('frontier-throughput', 'Throughput there', 'tokens/s per device', function (l) {
                     return +(l.tokens_per_s_per_device || 0).toFixed(1);
                   }, '#2a8f83')];
    return {
      figures_of_merit: [],
      sections: [{title: 'The frontier', figures: figures, tables: [{
        id: 'limits', title: 'How far it goes', head: [by ? short_name(by) : '', largest, 'tokens/s', 'device up to', 'the next lacks', 'with'],
        rows: limits.map(function (l) {
          return [by_name(l), l.largest === null ? 'none' : l.largest,
                  l.candidate === null ? '' : thousands(l.tokens_per_s_per_device),
                  l.candidate === null ? '' : gib_cell(l.peak_device_upper_bytes),
                  l.list_ended ? 'the list ends' : l.next_lacks_bytes === null ? '' : gib_cell(l.next_lacks_bytes),
                  l['with'] || ''];
        })
      }]}],
      assumptions: study.assumptions, question: space_words(study),
      next: ['tidemark predict of a row’s layout: its memory and time in full', 'more values in [space], where the list ended first']
    };
  }

