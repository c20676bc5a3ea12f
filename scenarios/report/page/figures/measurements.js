  // -- what was measured ------------------------------------------------------------------------------------------------

  function pair_figure(id, title, caption, x_name, x, predicted, measured) {
    return {
      id: id, title: title, caption: caption, height: 340,
      option: function (theme) {
        function line(name, colour, values, type) {
          return {name: name, type: 'line', step: 'end', symbol: 'none', color: colour, animation: false,
                  lineStyle: {width: 1.5, type: type},
                  data: values.map(function (bytes, i) { return [x[i], bytes / 1073741824]; })};
        }
        return {
          animation: false, grid: {left: 56, right: 14, top: 40, bottom: 64},
          legend: legend(theme, ['predicted', 'measured'], {icon: 'roundRect', itemHeight: 3}),
          xAxis: axis(theme, {type: 'value', name: x_name, nameLocation: 'middle', nameGap: 26, min: 'dataMin', max: 'dataMax'}),
          yAxis: axis(theme, {type: 'value', scale: true}),
          dataZoom: zoom(theme, 0, 'none'),
          tooltip: tooltip(theme, {trigger: 'axis', valueFormatter: function (v) { return v.toFixed(4) + ' GiB'; }}),
          series: [line('measured', '#d68d46', measured, 'solid'), line('predicted', '#2f5d8a', predicted, 'dashed')]
        };
      },
      table: function () {
        return {head: [x_name, 'predicted (B)', 'measured (B)'],
                rows: x.map(function (at, i) { return [at, predicted[i], measured[i]]; })};
      }
    };
  }
  function ranks_figure(id, title, ranks, predicted, measured) {
    return {
      id: id, title: title, caption: '', height: 300,
      option: function (theme) {
        function bars(name, colour, values) {
          return {name: name, type: 'bar', color: colour, barMaxWidth: 22, animation: false,
                  data: values.map(function (bytes) { return bytes / 1073741824; })};
        }
        return {
          animation: false, grid: {left: 56, right: 14, top: 40, bottom: 44},
          legend: legend(theme, ['predicted', 'measured']),
          xAxis: axis(theme, {type: 'category', data: ranks.map(String), name: 'rank', nameLocation: 'middle', nameGap: 26}),
          yAxis: axis(theme, {type: 'value', name: 'GiB', nameLocation: 'middle', nameGap: 40}),
          tooltip: tooltip(theme, {trigger: 'axis', valueFormatter: function (v) { return v.toFixed(4) + ' GiB'; }}),
          series: [bars('predicted', '#2f5d8a', predicted), bars('measured', '#d68d46', measured)]
        };
      },
      table: function () {
        return {head: ['rank', 'predicted (B)', 'measured (B)'],
                rows: ranks.map(function (rank, i) { return [rank, predicted[i], measured[i]]; })};
      }
    };
  }
  function error_text(pair) { return pair.error === null ? '' : (100 * pair.error).toFixed(3) + ' %'; }
  function pair_row(name, pair) {
    return [name, mib_cell(pair.predicted_bytes), mib_cell(pair.measured_bytes), error_text(pair)];
  }

  function comparison_document(data) {
    var c = data.record, head = ['what', 'predicted', 'measured', 'off by'];
    // Some logs say only what is allocated, and nvidia-smi what all of a process has.
    function most(r) { return r.reserved || r.device || r.allocated; }
    // Of a message that memory ran out nothing need be left to compare.
    var compared = c.kind === 'log' ? c.ranks.filter(most) : [];
    var ends = c.kind === 'log' ? c.ranks.filter(function (r) { return r.predicted_end; }) : [];
    if (c.kind === 'log')
      return {figures_of_merit: [], question: comparison_question(data), next: after_comparison, sections: [{
        title: 'Reserved memory of ranks',
        text: ends.map(function (r) { return 'Rank ' + r.rank + ' ' + r.predicted_end + '.'; }).join(' '),
        figures: !compared.length ? [] : [ranks_figure('reserved', 'Reserved, predicted and logged', compared.map(function (r) { return r.rank; }),
                               compared.map(function (r) { return most(r).predicted_bytes; }),
                               compared.map(function (r) { return most(r).measured_bytes; }))],
        tables: [{id: 'ranks', title: 'Rank by rank', head: head, rows: compared.reduce(function (rows, r) {
          if (r.allocated) rows.push(pair_row('rank ' + r.rank + ', allocated', r.allocated));
          if (r.reserved) rows.push(pair_row('rank ' + r.rank + ', reserved', r.reserved));
          if (r.device) rows.push(pair_row('rank ' + r.rank + ', device', r.device));
          return rows;
        }, [])}]
      }]};
    function unmatched(id, title, list) {
      return {id: id, title: title, head: ['what', 'tensors', 'requested', 'in blocks'], rows: list.slice(0, 40).map(function (u) {
        return [u.what, u.count, mib_cell(u.requested_bytes), mib_cell(u.block_bytes)];
      })};
    }
    var tables = [{id: 'peaks', title: 'Peaks of rank ' + c.rank, head: head, rows: [
      pair_row('allocated', c.allocated), pair_row('allocated as the step begins', c.allocated_at_begin), pair_row('reserved', c.reserved)
    ]}];
    if (c.only_predicted.length) tables.push(unmatched('only-predicted', 'At the peak in the prediction alone', c.only_predicted));
    if (c.only_measured.length) tables.push(unmatched('only-measured', 'At the peak in the measurement alone', c.only_measured));
    return {
      question: comparison_question(data), next: after_comparison,
      figures_of_merit: [[gib(c.allocated.predicted_bytes), 'allocated, predicted'],
                         [gib(c.allocated.measured_bytes), 'allocated, measured'],
                         [gib(c.reserved.predicted_bytes), 'reserved, predicted'],
                         [gib(c.reserved.measured_bytes), 'reserved, measured']],
      sections: [{title: 'Allocated over the step', figures: [pair_figure(
        'curve', 'Predicted and measured', 'GiB allocated on rank ' + c.rank + ', at equal parts of the step’s events.', 'part of the step',
        c.curve.map(function (p, i) { return i; }), c.curve.map(function (p) { return p[0]; }), c.curve.map(function (p) { return p[1]; }))]},
                 {title: 'The peak', tables: tables}]
    };
  }

  var after_comparison = ['tidemark explain FILE --at peak: which tensors the prediction has there',
                          'tidemark replay SNAPSHOT: what its requests reserve under other settings of the allocator'];
  function comparison_question(data) {
    var c = data.record;
    return (c.job ? job_words(c.job) : [c.scenario]).concat(['measured: ' + c.file]);
  }

  function validation_document(data) {
    var v = data.record, ranks = v.ranks, worst = ranks.reduce(function (a, b) {
      return b.largest_difference_bytes > a.largest_difference_bytes ? b : a;
    });
    var sections = [{
      title: 'Peaks of all ranks', text: 'On ' + v.machine + ', back end ' + v.back_end + ', sizes divided by ' + v.scale + '.',
      figures: [ranks_figure('peaks', 'Resident memory at the peak', ranks.map(function (r) { return r.rank; }),
                             ranks.map(function (r) { return r.predicted_peak_bytes; }),
                             ranks.map(function (r) { return r.measured_peak_bytes; }))],
      tables: [{id: 'ranks', title: 'Rank by rank', head: ['rank', 'host', 'agrees', 'predicted', 'measured', 'largest difference', 'of the peak'],
                rows: ranks.map(function (r) {
                  return [r.rank, r.host, r.agrees ? 'yes' : 'no', mib_cell(r.predicted_peak_bytes),
                          mib_cell(r.measured_peak_bytes), mib_cell(r.largest_difference_bytes), percent(r.difference_over_peak)];
                })}]
    }];
    if (worst.samples.length)
      sections.push({title: 'The rank that is furthest off', figures: [pair_figure(
        'samples', 'Resident memory of rank ' + worst.rank, 'GiB at the ops at which it was read.', 'op of its program',
        worst.samples.map(function (s) { return s.op; }), worst.samples.map(function (s) { return s.predicted_bytes; }),
        worst.samples.map(function (s) { return s.measured_bytes; }))]});
    return {figures_of_merit: [], sections: sections, question: job_words(v.scenario),
            next: v.agrees ? ['tidemark predict at full size: what these programs take there']
                           : ['tidemark explain FILE --show program: the ops of the rank that is furthest off']};
  }

