{{- define "jetraft.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "jetraft.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "jetraft.labels" -}}
{{ include "jetraft.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "jetraft.domain" -}}
{{ include "jetraft.name" . }}-headless.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "jetraft.clusterSecret" -}}
{{ .Values.cluster.existingSecret | default (printf "%s-cluster" (include "jetraft.name" .)) }}
{{- end }}

{{- define "jetraft.accountsSecret" -}}
{{- if .Values.accounts.existingSecret }}{{ .Values.accounts.existingSecret }}
{{- else if .Values.accounts.config }}{{ include "jetraft.name" . }}-accounts
{{- end }}
{{- end }}

{{/* Bytes of a quantity of Kubernetes: whole numbers with a binary or decimal suffix (values.schema.json). */}}
{{- define "jetraft.bytes" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mul (regexFind "^[0-9]+" .) (get $units (regexFind "[A-Za-z]*$" .)) -}}
{{- end }}

{{/* Most that streams in files hold: three quarters of the volume leave room for what compaction writes beside them. */}}
{{- define "jetraft.maxFile" -}}
{{- $volume := ternary .Values.persistence.size .Values.persistence.ephemeralSize .Values.persistence.enabled -}}
{{- if .Values.jetstream.maxFile }}{{ include "jetraft.bytes" .Values.jetstream.maxFile }}
{{- else }}{{ div (mul (include "jetraft.bytes" $volume) 3) 4 }}
{{- end }}
{{- end }}
